//! How a tile of columns of a head's matrix walks over the tokens, on processors and GPUs alike.
//!
//! Takes [`Columns`], which know where the tile is kept; emits passes over the rows of the matrix. A pass serves several tokens, so the
//! matrix is read and written once for all of them. Each element goes through the operations of one token after another as the specification
//! says, so how many tokens share a pass does not show in the result.

use crate::chunks::Chunk;
use crate::emit::{Cmp, Emitter, Val};
use odec_program::kernel::{Decay, LinearAttend, LinearAttendPart, LinearAttendPlaces};

/// Columns of a matrix, of values and of results.
pub(crate) trait Columns: Sized {
    /// Zero for each.
    fn zero(&self, e: &mut Emitter) -> Vec<Val>;

    /// Element `i` of a row, for all columns.
    fn all(&self, e: &mut Emitter, row: Val, i: Val) -> Val;

    /// Those of a row in memory.
    fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val>;

    /// Writes those that exist to a row in memory.
    fn store(&self, e: &mut Emitter, x: &[Val], row: Val);

    /// Those of row `i` of the matrix.
    fn kept(&self, e: &mut Emitter, i: Val) -> Vec<Val>;

    /// Replaces those of row `i` of the matrix.
    fn keep(&self, e: &mut Emitter, x: &[Val], i: Val);

    /// Writes 1 where the matrix has the same row and column.
    fn keep_ones(&self, e: &mut Emitter);

    /// Whether they may read matrices in memory; they may where this is `None`.
    fn exist(&self) -> Option<Val>;

    /// How many tokens share a pass where each adds its own value.
    fn tokens(&self, e: &Emitter, decay: Decay) -> u64;

    /// What a pass of several tokens takes at a time.
    fn parts(&self) -> Vec<Self>;
}

/// A head of a chunk of a sequence.
pub(crate) struct Head<'a> {
    kernel: &'a LinearAttend,
    places: LinearAttendPlaces,
    pointers: Vec<Val>,
    seq: Val,
    chunk: Chunk,
    head: Val,
}

/// Where the rows of a token begin.
struct Token {
    q: Option<Val>,
    k: Val,
    v: Option<Val>,
    o: Option<Val>,
    decay: Option<Val>,
}

/// What is done to a row of the matrix.
enum Step {
    /// Its columns are multiplied by these.
    Fade(Vec<Val>),
    /// Row i is multiplied by element i from here on.
    FadeRows(Val),
    /// Key and value are added: element i from here on times these.
    Add(Val, Vec<Val>),
    /// Element i from here on times it is added to a sum.
    Read(Val),
}

impl<'a> Head<'a> {
    /// Head `number` of all heads of all chunks of all sequences.
    pub(crate) fn new(e: &mut Emitter, kernel: &'a LinearAttend, number: Val) -> Head<'a> {
        let places = kernel.places();
        let pointers = (0..places.all).map(|n| e.operand(n.into()));
        let pointers = pointers.collect();
        let heads = e.int(kernel.heads as i64);
        let (chunk, head) = (e.div(number, heads), e.rem(number, heads));
        let seq = e.dim(1);
        Head {
            kernel,
            places,
            pointers,
            seq,
            chunk: Chunk::new(e, chunk, seq, kernel.chunks, kernel.reversed),
            head,
        }
    }

    /// Computes these columns of all tokens.
    pub(crate) fn walk(&self, e: &mut Emitter, columns: &impl Columns) {
        self.start(e, columns);
        match self.kernel.delta {
            true => self.correct(e, columns),
            false => self.add(e, columns),
        }
        let after = match self.kernel.part {
            LinearAttendPart::Results => self.places.matrices,
            LinearAttendPart::Ends | LinearAttendPart::Transitions => Some(self.places.out),
        };
        let Some(after) = after else {
            return;
        };
        let of = self.chunk.row(e);
        self.each_row(e, &[], |e, i, _| {
            let x = columns.kept(e, i);
            let row = self.matrix_row(e, after, of, i);
            columns.store(e, &x, row);
            vec![]
        });
    }

    /// The matrix before the first token.
    fn start(&self, e: &mut Emitter, columns: &impl Columns) {
        let zero = e.int(0);
        let nothing = columns.zero(e);
        let goes_on = self.places.matrices.map(|before| {
            let past = e.dim(2);
            let kept = e.cmp(Cmp::Gt, past, zero);
            let may = columns.exist().map_or(kept, |exist| e.and(kept, exist));
            (before, may)
        });
        let ends = self.places.ends.filter(|_| !self.kernel.delta);
        self.each_row(e, &[], |e, i, _| {
            let x = match (goes_on, ends) {
                (Some((before, may)), _) => e.when_with(may, &nothing, |e| {
                    let row = self.matrix_row(e, before, self.chunk.sequence, i);
                    columns.load(e, row)
                }),
                (None, Some(ends)) => self.joined(e, ends, i, columns),
                (None, None) => nothing.clone(),
            };
            columns.keep(e, &x, i);
            vec![]
        });
        if self.kernel.part == LinearAttendPart::Transitions {
            columns.keep_ones(e);
        }
        if let (Some(transitions), Some(ends)) = (self.places.transitions, self.places.ends) {
            self.join(e, transitions, ends, columns);
        }
    }

    /// Row `i` of what the other chunks leave to this one.
    fn joined(&self, e: &mut Emitter, ends: u32, i: Val, columns: &impl Columns) -> Vec<Val> {
        let nothing = columns.zero(e);
        self.chunk.joined(e, &nothing, |e, chunk, states| {
            let row = self.matrix_row(e, ends, chunk, i);
            let end = columns.load(e, row);
            let left = self.places.products.map(|products| {
                let row = self.decays(e, products, chunk);
                match self.kernel.decay {
                    Decay::Value => columns.load(e, row),
                    decay => {
                        let zero = e.int(0);
                        let of = if decay == Decay::Key { i } else { zero };
                        vec![columns.all(e, row, of); end.len()]
                    }
                }
            });
            let each = states.iter().zip(end).enumerate();
            each.map(|(n, (state, end))| match &left {
                Some(left) => e.fma(left[n], *state, end),
                None => e.add(*state, end),
            })
            .collect()
        })
    }

    /// What the other chunks leave under the delta rule, each of whose rows all rows of the matrix go into: made behind it, then put in its place.
    fn join(&self, e: &mut Emitter, transitions: u32, ends: u32, columns: &impl Columns) {
        let key = self.kernel.key;
        self.chunk.joined(e, &[], |e, chunk, _| {
            self.each_row(e, &[], |e, i, _| {
                let row = self.matrix_row(e, ends, chunk, i);
                let end = columns.load(e, row);
                let transition = self.row_of(e, transitions, chunk, i, key);
                let x = self.each_row(e, &end, |e, l, sums| {
                    let (by, row) = (columns.all(e, transition, l), columns.kept(e, l));
                    let each = sums.iter().zip(row);
                    each.map(|(x, s)| e.fma(by, s, *x)).collect()
                });
                let behind = e.add_int(i, key as i64);
                columns.keep(e, &x, behind);
                vec![]
            });
            self.each_row(e, &[], |e, i, _| {
                let behind = e.add_int(i, key as i64);
                let x = columns.kept(e, behind);
                columns.keep(e, &x, i);
                vec![]
            });
            vec![]
        });
    }

    /// Tokens that add their values.
    fn add(&self, e: &mut Emitter, columns: &impl Columns) {
        let alone = match columns.tokens(e, self.kernel.decay) as i64 {
            1 => self.chunk.begin,
            tokens => self.add_together(e, tokens, columns),
        };
        e.for_each(alone, self.chunk.end, 1, |e, t| {
            let token = self.token(e, t);
            self.added(e, &[token], columns);
        });
    }

    /// All that are so many together; gives the first behind them.
    fn add_together(&self, e: &mut Emitter, tokens: i64, columns: &impl Columns) -> Val {
        let begin = self.chunk.begin;
        let all = e.sub(self.chunk.end, begin);
        let whole = e.floor_to(all, tokens);
        let end = e.add(begin, whole);
        e.for_each(begin, end, tokens, |e, first| {
            let token = |n| {
                let t = e.add_int(first, n);
                self.token(e, t)
            };
            let tokens: Vec<Token> = (0..tokens).map(token).collect();
            for part in columns.parts() {
                self.added(e, &tokens, &part);
            }
        });
        end
    }

    /// Adds the values of tokens and gives what each reads, in one pass.
    fn added(&self, e: &mut Emitter, tokens: &[Token], columns: &impl Columns) {
        let mut steps = vec![];
        for token in tokens {
            steps.extend(self.fade_before(e, token, columns));
            let value = self.value(e, token, columns);
            steps.push(Step::Add(token.k, value));
            steps.extend(token.q.map(Step::Read));
            steps.extend(self.fade_after(e, token, columns));
        }
        let read = self.pass(e, &steps, columns);
        let places = tokens.iter().filter_map(|token| token.o);
        for (place, o) in places.zip(read) {
            columns.store(e, &o, place);
        }
    }

    /// Tokens that add what the matrix misses of their values, which is known when all its rows are read. So a pass adds for one token and
    /// reads for the next.
    fn correct(&self, e: &mut Emitter, columns: &impl Columns) {
        let Chunk { begin, end, .. } = self.chunk;
        let any = e.cmp(Cmp::Gt, end, begin);
        e.when(any, |e| {
            let first = self.token(e, begin);
            let missing = self.missing(e, vec![], &first, columns);
            let next = e.add_int(begin, 1);
            let missing = e.for_with(next, end, 1, &missing, |e, t, missing| {
                let before = e.add_int(t, -1);
                let [before, token] = [before, t].map(|t| self.token(e, t));
                let steps = self.corrected(e, &before, missing, columns);
                self.missing(e, steps, &token, columns)
            });
            if self.kernel.continued || self.kernel.part != LinearAttendPart::Results {
                let last = e.add_int(end, -1);
                let last = self.token(e, last);
                let steps = self.corrected(e, &last, &missing, columns);
                self.pass(e, &steps, columns);
            }
        });
    }

    /// What adds to the matrix what it misses of a token's value.
    fn corrected(
        &self,
        e: &mut Emitter,
        token: &Token,
        missing: &[Val],
        columns: &impl Columns,
    ) -> Vec<Step> {
        let add = Step::Add(token.k, missing.to_vec());
        let fade = self.fade_after(e, token, columns);
        [add].into_iter().chain(fade).collect()
    }

    /// What the matrix misses of a token's value after these steps, in one pass with them.
    fn missing(
        &self,
        e: &mut Emitter,
        mut steps: Vec<Step>,
        token: &Token,
        columns: &impl Columns,
    ) -> Vec<Val> {
        steps.extend(self.fade_before(e, token, columns));
        steps.extend(token.q.map(Step::Read));
        let read = self.pass(e, &steps, columns).remove(0);
        let v = self.value(e, token, columns);
        let missing: Vec<Val> = v.iter().zip(read).map(|(v, o)| e.sub(*v, o)).collect();
        if let Some(o) = token.o {
            columns.store(e, &missing, o);
        }
        missing
    }

    /// Takes the rows of the matrix once, each through all steps; gives the sums of those that read.
    fn pass(&self, e: &mut Emitter, steps: &[Step], columns: &impl Columns) -> Vec<Vec<Val>> {
        let nothing = columns.zero(e);
        let reads = steps.iter().filter(|s| matches!(s, Step::Read(_)));
        let sums = nothing.repeat(reads.count());
        let sums = self.each_row(e, &sums, |e, i, sums| {
            let mut sums = sums.to_vec();
            let mut next = sums.chunks_exact_mut(nothing.len());
            let mut row = columns.kept(e, i);
            for step in steps {
                match step {
                    Step::Fade(by) => fade(e, &mut row, by),
                    Step::FadeRows(by) => {
                        let by = columns.all(e, *by, i);
                        fade(e, &mut row, &vec![by; nothing.len()]);
                    }
                    Step::Add(key, value) => {
                        let key = columns.all(e, *key, i);
                        for (s, v) in row.iter_mut().zip(value) {
                            *s = e.fma(key, *v, *s);
                        }
                    }
                    Step::Read(query) => {
                        let query = columns.all(e, *query, i);
                        for (o, s) in next.next().into_iter().flatten().zip(&row) {
                            *o = e.fma(query, *s, *o);
                        }
                    }
                }
            }
            columns.keep(e, &row, i);
            sums
        });
        let each = sums.chunks_exact(nothing.len());
        each.map(<[Val]>::to_vec).collect()
    }

    /// The decay of a token where it comes before what the token does.
    fn fade_before(&self, e: &mut Emitter, token: &Token, columns: &impl Columns) -> Option<Step> {
        match self.kernel.reversed {
            true => None,
            false => self.fade(e, token, columns),
        }
    }

    /// The decay of a token where it comes after what the token does.
    fn fade_after(&self, e: &mut Emitter, token: &Token, columns: &impl Columns) -> Option<Step> {
        match self.kernel.reversed {
            true => self.fade(e, token, columns),
            false => None,
        }
    }

    fn fade(&self, e: &mut Emitter, token: &Token, columns: &impl Columns) -> Option<Step> {
        let row = token.decay?;
        match self.kernel.decay {
            Decay::None => None,
            Decay::Head => {
                let zero = e.int(0);
                let by = columns.all(e, row, zero);
                Some(Step::Fade(vec![by; columns.zero(e).len()]))
            }
            Decay::Key => Some(Step::FadeRows(row)),
            Decay::Value => Some(Step::Fade(columns.load(e, row))),
        }
    }

    /// Token `t` of those that the walk takes.
    fn token(&self, e: &mut Emitter, t: Val) -> Token {
        let kernel = self.kernel;
        let t = match kernel.reversed {
            true => {
                let last = e.add_int(self.seq, -1);
                e.sub(last, t)
            }
            false => t,
        };
        let first = e.mul(self.chunk.sequence, self.seq);
        let row = e.add(first, t);
        let places = &self.places;
        let written = kernel.part == LinearAttendPart::Results;
        Token {
            q: places.q.map(|q| self.row(e, q, row, kernel.key)),
            k: self.row(e, places.k, row, kernel.key),
            v: places.v.map(|v| self.row(e, v, row, kernel.value)),
            o: written.then(|| self.row(e, places.out, row, kernel.value)),
            decay: places.decay.map(|decay| self.decays(e, decay, row)),
        }
    }

    /// The head's columns of row `row` of decays.
    fn decays(&self, e: &mut Emitter, operand: u32, row: Val) -> Val {
        let all = self.kernel.decays().unwrap_or(0);
        self.row(e, operand, row, all / self.kernel.heads)
    }

    /// The head's columns of a row of an operand that has `width` of them for each head.
    fn row(&self, e: &mut Emitter, operand: u32, row: Val, width: u64) -> Val {
        let row = e.mul_int(row, self.kernel.heads as i64);
        let row = e.add(row, self.head);
        let offset = e.mul_int(row, width as i64);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    /// Row `i` of the head's matrix in an operand, that of sequence or chunk `of`.
    fn matrix_row(&self, e: &mut Emitter, operand: u32, of: Val, i: Val) -> Val {
        self.row_of(e, operand, of, i, self.kernel.value)
    }

    /// The same of matrices of so many columns.
    fn row_of(&self, e: &mut Emitter, operand: u32, of: Val, i: Val, width: u64) -> Val {
        let heads = e.mul_int(of, self.kernel.heads as i64);
        let number = e.add(heads, self.head);
        let first = e.mul_int(number, self.kernel.key as i64);
        let row = e.add(first, i);
        let offset = e.mul_int(row, width as i64);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    /// A token's value: zero where it has none.
    fn value(&self, e: &mut Emitter, token: &Token, columns: &impl Columns) -> Vec<Val> {
        match token.v {
            Some(v) => columns.load(e, v),
            None => columns.zero(e),
        }
    }

    fn each_row(
        &self,
        e: &mut Emitter,
        start: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let (zero, rows) = (e.int(0), e.int(self.kernel.key as i64));
        e.for_with(zero, rows, 1, start, body)
    }
}

fn fade(e: &mut Emitter, row: &mut [Val], by: &[Val]) {
    for (s, by) in row.iter_mut().zip(by) {
        *s = e.mul(*by, *s);
    }
}
