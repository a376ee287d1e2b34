//! Handles Ctrl-C, SIGTERM and SIGHUP: a long command saves its work and stops. A file that grows too large is an error.
//!
//! The first signal sets a flag; a second one ends the process at once, as if odec did not listen.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signals received so far.
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
        // What `nohup` starts outlives its terminal.
        let hangup = (!ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
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

/// Has a write beyond the limit of `ulimit -f` fail as one on a full disk does, instead of ending the process.
///
/// # Errors
/// When the system refuses.
pub fn survive_file_limits() -> io::Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Whether the process was started with a signal ignored, as far as the system tells.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok());
    mask.is_some_and(|m| m >> (signal - 1) & 1 == 1)
}
