//! Checks that a program can run on a GPU, before anything else is done: compute capability, available code, free memory.
//!
//! Takes what a driver says of its card; gives the code to load, or why there is none that would run.

use super::{CudaError, Driver};
use odec_program::Target;

/// A card, as far as it decides what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes that can still be reserved.
    pub free: u64,
}

impl Card {
    /// The properties of a GPU.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn of(driver: &impl Driver) -> Result<Card, CudaError> {
        Ok(Card {
            name: driver.name(),
            capability: driver.capability(),
            free: driver.free_memory().map_err(CudaError::Driver)?,
        })
    }

    /// Whether it runs code for a target.
    pub fn runs(&self, target: Target) -> bool {
        match target {
            Target::Sm80 => self.capability >= (8, 0),
            Target::Sm90a => self.capability == (9, 0),
            _ => false,
        }
    }

    /// The target that code for it is built for.
    ///
    /// # Errors
    /// When odec generates no code for so old a card.
    pub fn target(&self) -> Result<Target, CudaError> {
        let best = [Target::Sm90a, Target::Sm80]
            .into_iter()
            .find(|t| self.runs(*t));
        best.ok_or_else(|| CudaError::TooOld {
            card: self.name.clone(),
            major: self.capability.0,
            minor: self.capability.1,
        })
    }

    /// The best of the targets there is code for.
    ///
    /// # Errors
    /// When there is none, or none for so old a card.
    pub fn code(&self, built: &[Target]) -> Result<Target, CudaError> {
        let wanted = self.target()?;
        let best = built.iter().copied().filter(|t| self.runs(*t)).max();
        best.ok_or_else(|| {
            let names: Vec<&str> = built.iter().map(|t| t.name()).collect();
            CudaError::NoCode {
                card: self.name.clone(),
                capability: format!("{}.{}", self.capability.0, self.capability.1),
                built: names.join(", "),
                wanted,
            }
        })
    }

    /// Whether so many bytes can be reserved.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn room(&self, needed: u64) -> Result<(), CudaError> {
        match needed <= self.free {
            true => Ok(()),
            false => Err(CudaError::Memory {
                card: self.name.clone(),
                needed,
                free: self.free,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(capability: (i32, i32)) -> Card {
        Card {
            name: "X".into(),
            capability,
            free: 5 << 30,
        }
    }

    #[test]
    fn code_is_for_the_card_or_refused_with_what_would_run() {
        use Target::{Amx, Sm80, Sm90a};
        assert_eq!(card((9, 0)).code(&[Sm80, Sm90a]).unwrap(), Sm90a);
        assert_eq!(card((8, 6)).code(&[Sm80, Sm90a]).unwrap(), Sm80);
        // Code with an `a` runs on that generation alone.
        assert_eq!(card((10, 0)).code(&[Sm80, Sm90a]).unwrap(), Sm80);
        let said = |c: (i32, i32), built: &[Target]| card(c).code(built).unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                said((8, 0), &[Sm90a]),
                said((9, 0), &[Amx]),
                said((7, 5), &[Sm80]),
                card((8, 0)).room(6 << 30).unwrap_err().to_string(),
            ]
            .join("\n")
        );
        assert!(card((8, 0)).room(5 << 30).is_ok());
    }
}
