//! Who is promoted, and what is trained next, whatever order trials end in.

use odec_explore::ladder::{Best, Ladder, Mark, Next, Promotion, Task, ends};

/// Models of one trial each, with rungs that end at 1, 3 and 9.
fn nine() -> Ladder {
    let models: Vec<usize> = (0..9).collect();
    Ladder::new(&models, &vec![vec![1, 3, 9]; 9], 3, Best::Smallest)
}

/// Does everything, one task after the other; gives tasks and promotions in their order.
fn all(ladder: &mut Ladder, mark: impl Fn(Task) -> Mark) -> (Vec<Task>, Vec<Promotion>) {
    let (mut tasks, mut promotions) = (Vec::new(), Vec::new());
    loop {
        match ladder.next(true) {
            Next::Task(task) => {
                tasks.push(task);
                ladder.done(task, mark(task));
            }
            Next::Promoted(p) => promotions.push(p),
            Next::Wait => panic!("nothing is under way"),
            Next::Nothing => return (tasks, promotions),
        }
    }
}

#[test]
fn rungs_are_shares_of_steps_or_of_operations() {
    assert_eq!(ends(90, 3, 3, None, 1), [10, 30, 90]);
    assert_eq!(ends(100, 3, 3, None, 1), [11, 33, 100]);
    // 900 operations in all at 20 a step.
    assert_eq!(ends(45, 3, 3, Some(900), 20), [5, 15, 45]);
    assert_eq!(ends(200, 2, 2, Some(900), 9), [50, 200]);
    assert_eq!(ends(90, 3, 1, None, 1), [90]);
}

/// With one worker: a promotion as soon as three have finished (algorithm 2 looks for one before it begins anything new).
#[test]
fn the_best_third_goes_on_as_soon_as_it_is_known() {
    let worse_later = |t: Task| Some(t.trial as f64);
    let mut ladder = nine();
    let (tasks, promotions) = all(&mut ladder, worse_later);
    let of = |model, to, among| Promotion { model, to, among };
    assert_eq!(
        promotions,
        [of(0, 1, 3), of(1, 1, 6), of(2, 1, 9), of(0, 2, 3)]
    );
    let order: Vec<(usize, usize)> = tasks.iter().map(|t| (t.trial, t.rung)).collect();
    let [first, second, third] = [0, 3, 6].map(|n| [(n, 0), (n + 1, 0), (n + 2, 0)]);
    let want = [
        &first[..],
        &[(0, 1)],
        &second,
        &[(1, 1)],
        &third,
        &[(2, 1), (0, 2)],
    ]
    .concat();
    assert_eq!(order, want);
    assert!(ladder.is_complete());
    // Where each is better than all before, each is among the best third when it has finished: as the algorithm has it, what was promoted stays so.
    let (_, promotions) = all(&mut nine(), |t| Some(-(t.trial as f64)));
    let models: Vec<(usize, usize)> = promotions.iter().map(|p| (p.model, p.to)).collect();
    let want = [
        (2, 1),
        (3, 1),
        (4, 1),
        (4, 2),
        (5, 1),
        (5, 2),
        (6, 1),
        (6, 2),
        (7, 1),
        (7, 2),
        (8, 1),
        (8, 2),
    ];
    assert_eq!(models, want);
}

/// A sitting that ends anywhere and is told what is in the folder goes on as one that never ended.
#[test]
fn what_is_known_decides_not_who_asks() {
    let mark = |t: Task| Some(((t.trial * 7 + t.rung) % 5) as f64);
    let whole = all(&mut nine(), mark);
    for cut in 0..whole.0.len() {
        let mut ladder = nine();
        let (mut tasks, mut promotions) = (0, Vec::new());
        while tasks < cut {
            match ladder.next(true) {
                Next::Task(task) => {
                    ladder.done(task, mark(task));
                    tasks += 1;
                }
                Next::Promoted(p) => promotions.push(p),
                other => panic!("{other:?}"),
            }
        }
        // Of the task under way there is a checkpoint perhaps.
        let mut again = nine();
        for p in &promotions {
            again.promoted(p.model, p.to);
        }
        for task in &whole.0[..cut] {
            again.done(*task, mark(*task));
        }
        let (rest, more) = all(&mut again, mark);
        assert_eq!(rest, whole.0[cut..], "{cut}");
        promotions.extend(more);
        assert_eq!(promotions, whole.1, "{cut}");
    }
}

#[test]
fn seeds_of_a_model_go_together() {
    let rungs = vec![vec![2, 4]; 2];
    let mut ladder = Ladder::new(&[0, 0, 1, 1], &rungs, 2, Best::Largest);
    // The second model has the better mean, and the worst trial.
    let marks = [0.5, 0.5, 0.2, 0.9];
    let (tasks, promotions) = all(&mut ladder, |t| Some(marks[t.trial]));
    let order: Vec<(usize, usize)> = tasks.iter().map(|t| (t.trial, t.rung)).collect();
    assert_eq!(order, [(0, 0), (1, 0), (2, 0), (3, 0), (2, 1), (3, 1)]);
    assert_eq!(
        promotions,
        [Promotion {
            model: 1,
            to: 1,
            among: 2
        }]
    );
}

#[test]
fn what_diverged_is_never_promoted() {
    let rungs = vec![vec![2, 4]; 4];
    let mut ladder = Ladder::new(&[0, 1, 2, 3], &rungs, 2, Best::Smallest);
    let (_, promotions) = all(&mut ladder, |t| (t.trial == 3).then_some(1.0));
    let models: Vec<usize> = promotions.iter().map(|p| p.model).collect();
    assert_eq!(
        models,
        [3],
        "one of the best two, and the other one diverged"
    );
}

#[test]
fn without_time_what_was_begun_is_finished_and_nothing_else() {
    let mut ladder = nine();
    ladder.done(Task { trial: 0, rung: 0 }, Some(0.0));
    ladder.promoted(0, 1);
    ladder.stands(4, 0);
    assert_eq!(ladder.next(false), Next::Task(Task { trial: 4, rung: 0 }));
    assert_eq!(ladder.next(false), Next::Wait);
    ladder.done(Task { trial: 4, rung: 0 }, Some(0.0));
    assert_eq!(ladder.next(false), Next::Nothing);
    assert!(!ladder.is_complete());
    // The promoted one is begun when it has a step of its own.
    ladder.stands(0, 2);
    assert_eq!(ladder.next(false), Next::Task(Task { trial: 0, rung: 1 }));
}

#[test]
fn tasks_that_are_given_back_are_given_again() {
    let mut ladder = nine();
    let Next::Task(task) = ladder.next(true) else {
        panic!("nothing to do");
    };
    ladder.returned(task, Some(0));
    assert_eq!(ladder.next(true), Next::Task(task));
    // A run that is past a rung without a result of it, from a sitting without rungs: it goes on to the next one.
    ladder.returned(task, Some(2));
    assert_eq!(ladder.next(true), Next::Task(Task { trial: 0, rung: 1 }));
}
