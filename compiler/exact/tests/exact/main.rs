//! Exact numbers from outside.

mod exact;
mod nested;
mod polynomials;
