//! Reads coefficients and sums of values.
//!
//! Numbers and roots are read as [`Exact`] reads them; arithmetic is that of [`Coeff`], with its limits.

use super::parse::Reader;
use crate::coeff::{Coeff, CoeffError};
use crate::combination::Combination;
use crate::function::{Function, apply};
use odec_exact::Exact;
use odec_exact::read::ReadError;
use odec_text::cursor::{Cursor, Parsed};

/// Most parentheses within parentheses.
const MAX_DEPTH: usize = 32;

impl<'t> Reader<'t> {
    /// `1 - 1/2*h + h^2`.
    pub fn coefficient(&mut self) -> Parsed<Coeff> {
        self.sum_of_products(0)
    }

    /// A coefficient without symbols.
    pub fn number(&mut self) -> Parsed<Exact> {
        let at = self.place();
        match self.coefficient()?.as_constant() {
            Some(number) => Ok(number),
            None => self.cursor.error(at, "expected a number without symbols"),
        }
    }

    /// `x + 1/2*h*k1 - k2`, or `0`.
    pub fn sum(&mut self) -> Parsed<Combination> {
        let mut all = Combination::zero();
        if self.is_zero() {
            self.cursor.at += 1;
            return Ok(all);
        }
        let mut minus = self.cursor.take("-");
        loop {
            let (factor, at, name) = self.scaled()?;
            let own = Combination::value(self.found(at, name)?);
            let factor = if minus { factor.neg() } else { factor };
            let added = all.add_scaled(&factor, &own);
            self.done(at, added)?;
            minus = match () {
                _ if self.cursor.take("+") => false,
                _ if self.cursor.take("-") => true,
                _ => return Ok(all),
            };
        }
    }

    fn is_zero(&mut self) -> bool {
        let behind = self.cursor.rest().strip_prefix('0').map(str::trim_start);
        behind.is_some_and(|b| b.is_empty() || b.starts_with(',') || b.starts_with("//"))
    }

    /// Factors and then a name: `1/2*h*` and `L`. What stands before the name, where it stands, and the name.
    pub fn scaled(&mut self) -> Parsed<(Coeff, usize, &'t str)> {
        let (mut product, mut divides) = (Coeff::one(), false);
        if self.cursor.take("-") {
            product = product.neg();
        }
        loop {
            let at = self.place();
            if !divides && let Some(name) = last(&mut self.cursor) {
                return Ok((product, at, name));
            }
            let factor = self.power(0)?;
            let made = match divides {
                true => product.div(&factor),
                false => product.mul(&factor),
            };
            product = self.done(at, made)?;
            divides = match () {
                _ if self.cursor.take("*") => false,
                _ if self.cursor.take("/") => true,
                _ => return self.cursor.expected("`*` and a value"),
            };
        }
    }

    fn sum_of_products(&mut self, depth: usize) -> Parsed<Coeff> {
        let minus = self.cursor.take("-");
        let first = self.product(depth)?;
        let mut all = if minus { first.neg() } else { first };
        loop {
            let minus = match () {
                _ if self.cursor.take("+") => false,
                _ if self.cursor.take("-") => true,
                _ => return Ok(all),
            };
            let at = self.place();
            let term = self.product(depth)?;
            let made = match minus {
                true => all.sub(&term),
                false => all.add(&term),
            };
            all = self.done(at, made)?;
        }
    }

    fn product(&mut self, depth: usize) -> Parsed<Coeff> {
        let mut all = self.power(depth)?;
        loop {
            let divides = match () {
                _ if self.cursor.take("*") => false,
                _ if self.cursor.take("/") => true,
                _ => return Ok(all),
            };
            let at = self.place();
            let factor = self.power(depth)?;
            let made = match divides {
                true => all.div(&factor),
                false => all.mul(&factor),
            };
            all = self.done(at, made)?;
        }
    }

    fn power(&mut self, depth: usize) -> Parsed<Coeff> {
        let base = self.atom(depth)?;
        if !self.cursor.take("^") {
            return Ok(base);
        }
        let at = self.place();
        let power = self.whole("a whole power")?;
        let power = i64::try_from(power).unwrap_or(i64::MAX);
        self.done(at, base.pow(&Coeff::constant(Exact::int(power))))
    }

    fn atom(&mut self, depth: usize) -> Parsed<Coeff> {
        let rest = self.cursor.rest();
        let at = self.cursor.at;
        if rest.starts_with(|ch: char| ch.is_ascii_digit()) {
            return self.exact(decimal(rest));
        }
        if rest.starts_with("sqrt(") || rest.starts_with("root(") {
            let Some(len) = closed(rest) else {
                let what = "these parentheses are not closed in this line";
                return self.cursor.error(at, what);
            };
            let of_numbers = rest.starts_with("root(") || self.known(&rest[..len]).is_ok();
            if of_numbers {
                return self.exact(len);
            }
        }
        if self.cursor.take("(") {
            if depth == MAX_DEPTH {
                return self.cursor.error(at, "expected fewer parentheses");
            }
            let inside = self.sum_of_products(depth + 1)?;
            self.cursor.need(")")?;
            return Ok(inside);
        }
        if !rest.starts_with(|ch: char| ch.is_ascii_alphabetic() || ch == '_') {
            return self.cursor.expected("a number or a coefficient");
        }
        if let Some(function) = self.function_name() {
            if depth == MAX_DEPTH {
                return self.cursor.error(at, "expected fewer parentheses");
            }
            let inside = self.sum_of_products(depth + 1)?;
            self.cursor.need(")")?;
            return self.done(at, apply(function, &inside));
        }
        let name = self.symbol()?;
        match self.knows(&name) {
            true => Ok(Coeff::symbol(&name)),
            false => {
                let what = format!("`{name}` is no coefficient of this program");
                self.cursor.error(at, what)
            }
        }
    }

    /// Takes `exp(`.
    fn function_name(&mut self) -> Option<Function> {
        let rest = self.cursor.rest();
        let (name, _) = rest.split_once('(')?;
        let function = Function::called(name)?;
        self.cursor.at += name.len() + 1;
        Some(function)
    }

    /// `b`, `a[1][0]`.
    pub fn symbol(&mut self) -> Parsed<String> {
        let mut name = self.cursor.name("the name of a coefficient")?.to_string();
        while self.cursor.take("[") {
            let entry = self.whole("the number of an entry")?;
            self.cursor.need("]")?;
            name += &format!("[{entry}]");
        }
        Ok(name)
    }

    fn known(&mut self, text: &'t str) -> Result<Exact, ReadError> {
        if let Some(known) = self.numbers.get(text) {
            return Ok(known.clone());
        }
        let number: Exact = text.parse()?;
        self.numbers.insert(text, number.clone());
        Ok(number)
    }

    fn exact(&mut self, len: usize) -> Parsed<Coeff> {
        let at = self.cursor.at;
        match self.known(&self.cursor.left()[..len]) {
            Ok(number) => {
                self.cursor.at += len;
                Ok(Coeff::constant(number))
            }
            Err(why) => self.cursor.error(at + why.at, why.to_string()),
        }
    }

    fn done<T>(&self, at: usize, made: Result<T, CoeffError>) -> Parsed<T> {
        match made {
            Ok(made) => Ok(made),
            Err(why) => self.cursor.error(at, why.to_string()),
        }
    }
}

/// A name that no operator follows.
fn last<'t>(c: &mut Cursor<'t>) -> Option<&'t str> {
    let mut ahead = *c;
    let name = path(&mut ahead)?;
    let factor = ahead.rest().starts_with(['*', '/', '^', '[', '(']);
    (!factor).then(|| {
        *c = ahead;
        name
    })
}

/// The name of a field: words with `.` and `'` between and behind them.
pub fn path<'t>(c: &mut Cursor<'t>) -> Option<&'t str> {
    let rest = c.rest();
    let part = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '.' | '\'');
    let name = &rest[..rest.find(|ch| !part(ch)).unwrap_or(rest.len())];
    if !name.starts_with(|ch: char| ch.is_ascii_alphabetic() || ch == '_') {
        return None;
    }
    c.at += name.len();
    Some(name)
}

/// How long a number is that begins here: `3`, `0.35`, `1e-7`.
fn decimal(rest: &str) -> usize {
    let digits = |from: usize| {
        let after = rest[from..].find(|ch: char| !ch.is_ascii_digit());
        after.map_or(rest.len(), |n| from + n)
    };
    let mut end = digits(0);
    if rest[end..].starts_with('.') {
        end = digits(end + 1);
    }
    let exponent = rest[end..].strip_prefix(['e', 'E']);
    let sign = |e: &str| usize::from(e.starts_with(['-', '+']));
    match exponent.map(|e| end + 1 + sign(e)) {
        Some(from) if digits(from) > from => digits(from),
        _ => end,
    }
}

/// How long a call is that begins here.
fn closed(rest: &str) -> Option<usize> {
    let mut open = 0usize;
    for (i, ch) in rest.char_indices() {
        match ch {
            '(' => open += 1,
            ')' if open == 1 => return Some(i + 1),
            ')' => open -= 1,
            _ => {}
        }
    }
    None
}
