//! Windows over a grid of tokens: what a convolution of images multiplies.
//!
//! The tokens of a grid are rows of a sequence, from the top left on, one row of the grid after the other. Leaves what is computed of
//! them to the bodies of kernels. Which rows lie under a square is said here, for validation, emitters and the meaning of kernels alike.

use serde::{Deserialize, Serialize};

/// Longest side of a grid, and the farthest that a window begins from it.
pub const MOST_SIDE: u32 = 1 << 16;
/// Most places of a window.
pub const MOST_PLACES: u64 = 1 << 8;
/// Most tokens, windows, or places of all windows.
const MOST_ROWS: u64 = 1 << 31;

/// Square windows at equal distances. Places beside the grid hold zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Window {
    /// Rows and columns of the grid.
    pub grid: [u32; 2],
    /// Rows and columns of windows.
    pub windows: [u32; 2],
    /// Side of a window.
    pub kernel: u32,
    /// Tokens from a window to the next, along both axes.
    pub stride: u32,
    /// How many tokens above and to the left of the grid the first window begins; inside of it, if negative.
    pub before: [i32; 2],
}

/// Which rows of an operand a kernel reads for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Through {
    /// The domain has a row for each place of each window, window by window; the operand one for each token.
    Places,
    /// A row for each window, and of the operand for each token: the one at this place.
    Place(u32),
    /// A row for each token, and of the operand for each window: the one that has the token at this place.
    Under(u32),
}

impl Window {
    /// Windows of `kernel` × `kernel` tokens, `padding` zeros around the grid; `None` where none fits into it.
    pub fn fitted(grid: [u64; 2], kernel: u64, stride: u64, padding: u64) -> Option<Window> {
        let small = |n: u64| u32::try_from(n).ok().filter(|n| *n <= MOST_SIDE);
        let (kernel, stride, padding) = (small(kernel)?, small(stride)?, small(padding)?);
        let windows = |side: u32| {
            let places = (side + 2 * padding).checked_sub(kernel)?;
            places.checked_div(stride).map(|n| n + 1)
        };
        let grid = [small(grid[0])?, small(grid[1])?];
        let before = [i32::try_from(padding).ok()?; 2];
        let window = Window {
            grid,
            windows: [windows(grid[0])?, windows(grid[1])?],
            kernel,
            stride,
            before,
        };
        window.check().is_ok().then_some(window)
    }

    /// One token at a time: `windows` of a sequence of `tokens`, from the one at `first` on.
    pub fn part(tokens: u64, first: u64, windows: u64) -> Option<Window> {
        let column = |n: u64| Some([u32::try_from(n).ok()?, 1]);
        let window = Window {
            grid: column(tokens)?,
            windows: column(windows)?,
            kernel: 1,
            stride: 1,
            before: [-i32::try_from(first).ok()?, 0],
        };
        window.check().is_ok().then_some(window)
    }

    /// Tokens of the grid.
    pub const fn tokens(&self) -> u64 {
        self.grid[0] as u64 * self.grid[1] as u64
    }

    /// How many windows there are.
    pub const fn count(&self) -> u64 {
        self.windows[0] as u64 * self.windows[1] as u64
    }

    /// Places of a window.
    pub const fn places(&self) -> u64 {
        self.kernel as u64 * self.kernel as u64
    }

    /// Rows of the domain and of the operand for each sequence.
    pub const fn rows(&self, through: Through) -> [u64; 2] {
        match through {
            Through::Places => [self.count() * self.places(), self.tokens()],
            Through::Place(_) => [self.count(), self.tokens()],
            Through::Under(_) => [self.tokens(), self.count()],
        }
    }

    /// Why these are no windows.
    ///
    /// # Errors
    /// In words: a length is 0 or too large.
    pub fn check(&self) -> Result<(), String> {
        let sides = [self.grid, self.windows, [self.kernel, self.stride]];
        let numbers = sides.into_iter().flatten();
        // A sequence of tokens is a grid of one column.
        let long = |[height, width]: [u32; 2]| height > MOST_SIDE && width > 1;
        let far = |n: i32| n.unsigned_abs() as u64 > MOST_ROWS;
        let [rows, _] = self.rows(Through::Places);
        if numbers.min() == Some(0)
            || [self.kernel, self.stride].iter().any(|n| *n > MOST_SIDE)
            || long(self.grid)
            || long(self.windows)
            || self.before.into_iter().any(far)
            || self.places() > MOST_PLACES
            || rows > MOST_ROWS
            || self.tokens() > MOST_ROWS
        {
            return Err(format!("{self:?} are no windows"));
        }
        Ok(())
    }

    /// The token of the grid at a place of a window.
    pub const fn token(&self, window: u64, place: u64) -> Option<u64> {
        let (across, side) = (self.windows[1] as u64, self.kernel as u64);
        let y = self.along(0, window / across, place / side);
        let x = self.along(1, window % across, place % side);
        match (y, x) {
            (Some(y), Some(x)) => Some(y * self.grid[1] as u64 + x),
            _ => None,
        }
    }

    /// The window that has a token at a place.
    pub const fn window(&self, token: u64, place: u64) -> Option<u64> {
        let (across, side) = (self.grid[1] as u64, self.kernel as u64);
        let y = self.back(0, token / across, place / side);
        let x = self.back(1, token % across, place % side);
        match (y, x) {
            (Some(y), Some(x)) => Some(y * self.windows[1] as u64 + x),
            _ => None,
        }
    }

    const fn along(&self, axis: usize, window: u64, place: u64) -> Option<u64> {
        let at = (window * self.stride as u64 + place) as i64 - self.before[axis] as i64;
        if at >= 0 && at < self.grid[axis] as i64 {
            Some(at as u64)
        } else {
            None
        }
    }

    const fn back(&self, axis: usize, token: u64, place: u64) -> Option<u64> {
        let (at, stride) = (
            token as i64 + self.before[axis] as i64 - place as i64,
            self.stride as i64,
        );
        if at >= 0 && at % stride == 0 && at / stride < self.windows[axis] as i64 {
            Some((at / stride) as u64)
        } else {
            None
        }
    }

    /// The operand's row for row `row` of the domain; `None`: it is beside the grid, or no window is there.
    pub const fn apply(&self, through: Through, row: u64) -> Option<u64> {
        let [own, other] = self.rows(through);
        let (sequence, at) = (row / own, row % own);
        let found = match through {
            Through::Places => self.token(at / self.places(), at % self.places()),
            Through::Place(place) => self.token(at, place as u64),
            Through::Under(place) => self.window(at, place as u64),
        };
        match found {
            Some(found) => Some(sequence * other + found),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place of a window lies on a token exactly where the token lies under the window.
    #[test]
    fn tokens_lie_under_the_windows_that_have_them() {
        let odd = Window::fitted([5, 7], 3, 2, 1).unwrap();
        assert_eq!(odd.windows, [3, 4]);
        let wide = Window::fitted([4, 6], 4, 3, 2).unwrap();
        let part = Window::part(5, 2, 3).unwrap();
        for w in [odd, wide, part] {
            for place in 0..w.places() {
                let pairs = (0..w.count()).filter_map(|n| Some((n, w.token(n, place)?)));
                let pairs: Vec<(u64, u64)> = pairs.collect();
                let back = (0..w.tokens()).filter_map(|t| Some((w.window(t, place)?, t)));
                let mut back: Vec<(u64, u64)> = back.collect();
                back.sort_unstable();
                assert_eq!(pairs, back);
            }
        }
        assert_eq!(odd.token(0, 0), None);
        assert_eq!(odd.token(0, 4), Some(0));
        assert_eq!(odd.token(5, 0), Some(8));
        assert_eq!(
            (0..3).map(|n| part.token(n, 0)).collect::<Vec<_>>(),
            [2, 3, 4].map(Some)
        );
    }

    #[test]
    fn windows_that_are_none_are_refused() {
        assert_eq!(Window::fitted([4, 4], 7, 1, 1), None);
        assert!(Window::fitted([4, 4], 7, 1, 2).is_some());
        assert_eq!(Window::fitted([4, 4], 3, 0, 1), None);
        assert_eq!(Window::fitted([0, 4], 1, 1, 0), None);
        assert_eq!(Window::fitted([1 << 17, 4], 1, 1, 0), None);
    }
}
