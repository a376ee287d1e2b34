//! Complex numbers, and the values of stability functions at them.

use odec_exact::Exact;
use odec_numerics::poly::Poly;
use odec_numerics::stability::StabilityFunction;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex(pub f64, pub f64);

impl Complex {
    pub fn plus(self, o: Complex) -> Complex {
        Complex(self.0 + o.0, self.1 + o.1)
    }
    pub fn minus(self, o: Complex) -> Complex {
        Complex(self.0 - o.0, self.1 - o.1)
    }
    pub fn times(self, o: Complex) -> Complex {
        Complex(self.0 * o.0 - self.1 * o.1, self.0 * o.1 + self.1 * o.0)
    }
    pub fn over(self, o: Complex) -> Complex {
        let d = o.0 * o.0 + o.1 * o.1;
        Complex(
            (self.0 * o.0 + self.1 * o.1) / d,
            (self.1 * o.0 - self.0 * o.1) / d,
        )
    }
    pub fn modulus(self) -> f64 {
        (self.0 * self.0 + self.1 * self.1).sqrt()
    }
}

/// What is compared with 1 at a point of the plane.
pub trait Level {
    fn at(&mut self, z: Complex) -> f64;
}

/// P/Q, and as a level its modulus.
pub struct Rational(pub Vec<f64>, pub Vec<f64>);

impl Rational {
    pub fn new(f: &StabilityFunction) -> Rational {
        let floats = |p: &Poly| p.0.iter().map(Exact::to_f64).collect();
        Rational(floats(&f.numerator), floats(&f.denominator))
    }
}

impl Rational {
    /// The value of P/Q.
    pub fn value(&self, z: Complex) -> Complex {
        let horner = |sum: Complex, c: &f64| sum.times(z).plus(Complex(*c, 0.0));
        let value = |p: &[f64]| p.iter().rev().fold(Complex(0.0, 0.0), horner);
        value(&self.0).over(value(&self.1))
    }
}

impl Level for Rational {
    fn at(&mut self, z: Complex) -> f64 {
        self.value(z).modulus()
    }
}
