//! Loops and branches, written as closures.

use super::{Emitter, Type, Val, list, types};

impl Emitter {
    /// Cuts `0..count` into pieces of `length`: the body takes where one begins, and, of the last one alone, which may be shorter, how many are left.
    pub fn each_piece(
        &mut self,
        count: Val,
        length: i64,
        body: impl Fn(&mut Emitter, Val, Option<Val>),
    ) {
        let (zero, whole) = (self.int(0), self.floor_to(count, length));
        self.for_each(zero, whole, length, |e, i| body(e, i, None));
        if whole.known().is_none() || whole.known() != count.known() {
            self.for_each(whole, count, length, |e, i| {
                let left = e.sub(count, i);
                body(e, i, Some(left));
            });
        }
    }
    /// `for i in (lo..hi).step_by(step)`.
    pub fn for_each(&mut self, lo: Val, hi: Val, step: i64, body: impl FnOnce(&mut Emitter, Val)) {
        self.for_with(lo, hi, step, &[], |e, i, _| {
            body(e, i);
            vec![]
        });
    }

    /// `for i in (lo..hi).step_by(step)` with values carried from iteration to iteration: the body takes
    /// them and gives the next ones; the last ones are the result.
    pub fn for_with(
        &mut self,
        lo: Val,
        hi: Val,
        step: i64,
        init: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let step = self.int(step);
        self.for_with_step(lo, hi, step, init, body)
    }

    /// The same with a step, more than zero, that need not be known.
    pub fn for_with_step(
        &mut self,
        lo: Val,
        hi: Val,
        step: Val,
        init: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let i = self.temp(Type::I64);
        let carried: Vec<Val> = init.iter().map(|v| self.temp(v.ty)).collect();
        let results: Vec<Val> = init.iter().map(|v| self.temp(v.ty)).collect();
        let head = format!("scf.for {i} = {lo} to {hi} step {step}");
        if init.is_empty() {
            self.stmt(format_args!("{head} : i64 {{"));
        } else {
            let pairs: Vec<String> = carried
                .iter()
                .zip(init)
                .map(|(c, v)| format!("{c} = {v}"))
                .collect();
            let (names, types) = (list(&results), types(&results));
            self.stmt(format_args!(
                "{names} = {head} iter_args({}) -> ({types}) : i64 {{",
                pairs.join(", ")
            ));
        }
        self.region(|e| body(e, i, &carried));
        self.stmt(format_args!("}}"));
        results
    }

    /// Runs `then` if the i1 `condition` holds.
    pub fn when(&mut self, condition: Val, then: impl FnOnce(&mut Emitter)) {
        self.stmt(format_args!("scf.if {condition} {{"));
        self.region(|e| {
            then(e);
            vec![]
        });
        self.stmt(format_args!("}}"));
    }

    /// The values that `then` gives if the i1 `condition` holds, else `others`.
    pub fn when_with(
        &mut self,
        condition: Val,
        others: &[Val],
        mut then: impl FnMut(&mut Emitter) -> Vec<Val>,
    ) -> Vec<Val> {
        self.either_with(condition, others, |e, holds| match holds {
            true => then(e),
            false => others.to_vec(),
        })
    }

    /// Runs `arm(true)` if the i1 `condition` holds, `arm(false)` if not. Both are emitted.
    pub fn either(&mut self, condition: Val, mut arm: impl FnMut(&mut Emitter, bool)) {
        self.either_with(condition, &[], |e, holds| {
            arm(e, holds);
            vec![]
        });
    }

    /// The same for arms that give values, of the types of `like`.
    pub fn either_with(
        &mut self,
        condition: Val,
        like: &[Val],
        mut arm: impl FnMut(&mut Emitter, bool) -> Vec<Val>,
    ) -> Vec<Val> {
        let results: Vec<Val> = like.iter().map(|v| self.temp(v.ty)).collect();
        let (names, kinds) = (list(&results), types(&results));
        match results.is_empty() {
            true => self.stmt(format_args!("scf.if {condition} {{")),
            false => self.stmt(format_args!("{names} = scf.if {condition} -> ({kinds}) {{")),
        }
        self.region(|e| arm(e, true));
        self.stmt(format_args!("}} else {{"));
        self.region(|e| arm(e, false));
        self.stmt(format_args!("}}"));
        results
    }

    fn region(&mut self, body: impl FnOnce(&mut Emitter) -> Vec<Val>) {
        self.indent += 1;
        let out = body(self);
        if !out.is_empty() {
            self.stmt(format_args!("scf.yield {} : {}", list(&out), types(&out)));
        }
        self.indent -= 1;
    }
}
