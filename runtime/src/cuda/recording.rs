//! A driver without a card: it writes down what it is told to launch, and launches nothing.

use super::Driver;
use super::graphs::Planned;
use crate::memory::Buffer;
use odec_program::gpu::Shape;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

/// A launch as the driver was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub function: usize,
    pub shape: Shape,
    pub arguments: Vec<u64>,
}

/// How often graphs were made, told other arguments, and replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub graphs: u64,
    pub updates: u64,
    pub replays: u64,
}

impl From<&Planned> for Recorded {
    fn from(p: &Planned) -> Recorded {
        Recorded {
            function: p.function,
            shape: p.launch.shape,
            arguments: p.launch.arguments.clone(),
        }
    }
}

/// Writes down launches; copies share what was written.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub launches: Rc<RefCell<Vec<Recorded>>>,
    pub made: Rc<Cell<Made>>,
    /// Dynamic shared memory that kernels were loaded with.
    pub dynamic: Rc<RefCell<Vec<u64>>>,
    /// Whether launches are looked at and not kept.
    pub forgets: bool,
    /// What [`Driver::free_memory`] says.
    pub memory: u64,
}

impl Recording {
    fn count(&self, with: impl FnOnce(&mut Made)) {
        let mut made = self.made.get();
        with(&mut made);
        self.made.set(made);
    }
}

impl Driver for Recording {
    /// Its nodes as they are.
    type Graph = Vec<Recorded>;

    fn name(&self) -> String {
        "no card".into()
    }
    fn load(&mut self, ptx: &str, kernels: &[(&str, u64)]) -> Result<(), String> {
        self.dynamic.replace(kernels.iter().map(|k| k.1).collect());
        let lacks = |k: &&(&str, u64)| !ptx.contains(&format!(".entry {}(", k.0));
        match kernels.iter().find(lacks) {
            Some(k) => Err(format!("the code has no kernel {}", k.0)),
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
    fn instantiate(&mut self, launches: &[Planned]) -> Result<Vec<Recorded>, String> {
        self.count(|made| made.graphs += 1);
        Ok(launches.iter().map(Recorded::from).collect())
    }
    fn update(&mut self, graph: &mut Vec<Recorded>, n: usize, to: &Planned) -> Result<(), String> {
        self.count(|made| made.updates += 1);
        graph[n] = to.into();
        Ok(())
    }
    fn replay(&mut self, graph: &mut Vec<Recorded>) -> Result<(), String> {
        self.count(|made| made.replays += 1);
        if !self.forgets {
            self.launches.borrow_mut().extend(graph.iter().cloned());
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}
