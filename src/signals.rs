//! Ctrl-C and SIGTERM as a wish that a long command looks at, instead of the end of the process.
//!
//! The first signal sets a flag; a second one ends the process at once, as if odec did not listen.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What has been asked for so far.
#[derive(Default)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicUsize>,
}

impl Signals {
    /// The flag that a signal sets.
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// Listens from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen(&self) -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // Actions run in this order, so the first signal finds the flag unset.
            flag::register_conditional_default(signal, self.stop.clone())?;
            flag::register_usize(signal, self.received.clone(), signal as usize)?;
            flag::register(signal, self.stop.clone())?;
        }
        Ok(())
    }

    /// The number of the last signal; 0 before the first.
    pub fn received(&self) -> u8 {
        self.received.load(Ordering::Relaxed) as u8
    }
}
