//! Why a command stopped: the user's input, a signal, or an internal error.

use odec_runtime::errln;
use odec_source::escape::escaped_lines;
use std::fmt::Display;

#[derive(Debug)]
pub enum Failure {
    /// Something given is wrong: a sentence for the user. Exit code 1.
    Input(String),
    /// Diagnostics that have been printed already. Exit code 1.
    Reported { errors: usize },
    /// A signal ended the command, which has saved its work. Exit code 128 + signal, as shells have it.
    Stopped { signal: u8, what: String },
    /// odec contradicts itself. Exit code 3.
    Internal(String),
}

impl Failure {
    pub fn input(what: impl Display) -> Failure {
        Failure::Input(what.to_string())
    }

    pub fn internal(what: impl Display) -> Failure {
        Failure::Internal(what.to_string())
    }

    pub fn code(&self) -> u8 {
        match self {
            Failure::Input(_) | Failure::Reported { .. } => 1,
            Failure::Stopped { signal, .. } => 128 + signal,
            Failure::Internal(_) => 3,
        }
    }

    /// What is quoted of files and manifests may hold anything.
    fn escaped(&self) -> Failure {
        match self {
            Failure::Input(what) => Failure::Input(escaped_lines(what)),
            Failure::Internal(what) => Failure::Internal(escaped_lines(what)),
            Failure::Stopped { signal, what } => Failure::Stopped {
                signal: *signal,
                what: escaped_lines(what),
            },
            Failure::Reported { errors } => Failure::Reported { errors: *errors },
        }
    }

    pub fn print(&self) {
        match &self.escaped() {
            Failure::Input(what) => errln!("error: {what}"),
            Failure::Reported { errors: 1 } => errln!("1 error"),
            Failure::Reported { errors } => errln!("{errors} errors"),
            Failure::Stopped { signal: 1, what } => errln!("stopped by SIGHUP: {what}"),
            Failure::Stopped { signal: 2, what } => errln!("stopped by Ctrl-C: {what}"),
            Failure::Stopped { what, .. } => errln!("stopped by SIGTERM: {what}"),
            Failure::Internal(what) => {
                errln!("error: {what}");
                errln!(
                    "This is a fault in odec, not in your file. Please report it with the file and the command."
                );
            }
        }
    }
}

pub type Done<T = ()> = Result<T, Failure>;
