//! `odec design`: what it writes is proved by `odec check`, what cannot be is said.

mod place;

use place::{Place, text};

#[test]
fn a_design_is_written_proved_and_drawn() {
    let place = Place::new();
    let args = [
        "design",
        "--stages",
        "3",
        "--order",
        "3",
        "--maximize",
        "ssp",
    ];
    let kept = ["-o", "best.ode", "--svg", "best.svg"];
    let said = place.good(&[&args[..], &kept].concat());
    assert!(
        said.contains("ssp") && said.contains("every claim proved"),
        "{said}"
    );
    let written = place.read("best.ode");
    assert!(
        written.contains("scheme best") && written.contains("ssp 1"),
        "{written}"
    );
    let checked = place.good(&["check", "best.ode"]);
    assert_eq!(checked.matches(": proved").count(), 3, "{checked}");
    place.good(&["fmt", "--check", "best.ode"]);
    assert!(place.read("best.svg").contains("<circle"));
    // The same command gives the same bytes, and on standard output the same scheme.
    let printed = place.good(&args);
    let scheme = |text: &str| text.split_once('{').map(|(_, body)| body.to_string());
    assert_eq!(scheme(&printed), scheme(&written));

    let again = place.odec(&[&args[..], &kept].concat());
    assert!(!again.status.success());
    assert!(text(&again.stderr).contains("--overwrite"));
    place.good(&[&args[..], &kept, &["--overwrite"]].concat());
}

#[test]
fn what_cannot_be_designed_is_said() {
    let place = Place::new();
    let cases: [(&[&str], &str); 5] = [
        (&["--stages", "5", "--order", "5"], "that takes 6"),
        (
            &["--stages", "4", "--order", "3", "--maximize", "speed"],
            "imaginary_axis",
        ),
        (
            &["--stages", "3", "--order", "3", "--zero", "a13"],
            "such as a31",
        ),
        (
            &["--stages", "3", "--order", "3", "-o", "best.txt"],
            "best.ode",
        ),
        (
            &["--stages", "3", "--order", "3", "-o", "order.ode"],
            "called `order`",
        ),
    ];
    for (args, why) in cases {
        let out = place.odec(&[&["design"], args].concat());
        let said = text(&out.stderr);
        assert!(
            !out.status.success() && said.contains(why),
            "{args:?}: {said}"
        );
    }
}

/// Two registers, in the language and proved; fractions that solve the conditions exactly where there are such.
#[test]
fn low_storage_is_written_as_two_registers() {
    let place = Place::new();
    let args = |stages: &'static str, order: &'static str, file: &'static str| {
        let method = ["design", "--stages", stages, "--order", order];
        [&method[..], &["--low-storage", "2n", "-o", file]].concat()
    };
    place.good(&args("3", "3", "three.ode"));
    let written = place.read("three.ode");
    assert!(
        written.contains("order 3;") && written.contains("*q + h*F(y)"),
        "{written}"
    );
    place.good(
        &[
            &args("5", "4", "five.ode")[..],
            &["--maximize", "imaginary_axis"],
        ]
        .concat(),
    );
    let checked = place.good(&["check", "five.ode"]);
    assert!(
        checked.contains("order 4 within 1e-24: proved"),
        "{checked}"
    );
}

/// A picture that cannot be drawn is said before anything is written.
#[test]
fn what_has_no_picture_writes_no_file() {
    let cases: [&[&str]; 4] = [
        &["--stages", "2", "--order", "2", "--splitting"],
        &["--stages", "2", "--order", "2", "--diagonal"],
        &["--stages", "3", "--order", "3", "--low-storage", "2n"],
        &[
            "--stages", "3", "--order", "3", "--zero", "a31", "--zero", "b2",
        ],
    ];
    let place = Place::new();
    for args in cases {
        let files = ["-o", "best.ode", "--svg", "best.svg"];
        let out = place.odec(&[&["design"], args, &files].concat());
        let said = text(&out.stderr);
        assert!(
            !out.status.success() && said.contains("no picture"),
            "{args:?}: {said}"
        );
        assert!(!place.path().join("best.ode").exists() && !place.path().join("best.svg").exists());
    }
}
