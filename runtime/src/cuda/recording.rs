//! A driver without a card: it writes down what it is told to launch, and launches nothing.

use super::Driver;
use crate::memory::Buffer;
use odec_program::gpu::Shape;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

/// A launch as the driver was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub function: usize,
    pub shape: Shape,
    pub arguments: Vec<u64>,
}

/// Writes down launches; copies share what was written.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub launches: Rc<RefCell<Vec<Recorded>>>,
    /// Whether launches are looked at and not kept.
    pub forgets: bool,
    /// What [`Driver::free_memory`] says.
    pub memory: u64,
}

impl Driver for Recording {
    fn name(&self) -> String {
        "no card".into()
    }
    fn load(&mut self, ptx: &str, symbols: &[&str]) -> Result<(), String> {
        let lacks = |s: &&&str| !ptx.contains(&format!(".entry {s}("));
        match symbols.iter().find(lacks) {
            Some(s) => Err(format!("the code has no kernel {s}")),
            None => Ok(()),
        }
    }
    fn free_memory(&self) -> Result<u64, String> {
        Ok(self.memory)
    }
    fn allocate(&self, bytes: u64) -> io::Result<Buffer> {
        Buffer::unreserved(bytes)
    }
    fn launch(&mut self, function: usize, shape: Shape, arguments: &[u64]) -> Result<(), String> {
        if !self.forgets {
            self.launches.borrow_mut().push(Recorded {
                function,
                shape,
                arguments: arguments.to_vec(),
            });
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
