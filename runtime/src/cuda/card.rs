//! CUDA's driver, loaded at run time: building odec needs no CUDA, and a machine without it gets a sentence.
//!
//! Not run on a card yet.

#![allow(unsafe_code)]

use super::graphs::Planned;
use super::{CudaError, Driver};
use crate::memory::Buffer;
use cudarc::driver::{CudaContext, DriverError, result, sys};
use odec_program::Target;
use odec_program::gpu::Shape;
use std::ffi::{CString, c_void};
use std::io;
use std::sync::Arc;

/// One card.
pub(super) struct Cuda {
    context: Arc<CudaContext>,
    name: String,
    capability: (i32, i32),
    functions: Vec<sys::CUfunction>,
}

/// A chain of launches, ready to be queued.
pub(super) struct Graph {
    context: Arc<CudaContext>,
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: both were made by the driver, in this context, and nobody else has them. What is queued of them finishes.
        unsafe {
            if self.context.bind_to_thread().is_ok() {
                if !self.ready.is_null() {
                    let _ = result::graph::exec_destroy(self.ready);
                }
                let _ = result::graph::destroy(self.graph);
            }
        }
    }
}

fn refused(e: DriverError) -> String {
    e.to_string()
}

impl Cuda {
    /// Card number `card`.
    pub fn open(card: u32) -> Result<Cuda, CudaError> {
        // SAFETY: it only tries to load the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let driver = |e: DriverError| CudaError::Driver(e.to_string());
        let found = CudaContext::device_count().map_err(driver)?;
        let found = u32::try_from(found).unwrap_or(0);
        if card >= found {
            return Err(CudaError::NoCard {
                wanted: card,
                found,
            });
        }
        let context = CudaContext::new(card as usize).map_err(driver)?;
        let name = context.name().map_err(driver)?;
        let (major, minor) = context.compute_capability().map_err(driver)?;
        if major < 8 {
            let card = name;
            return Err(CudaError::TooOld { card, major, minor });
        }
        Ok(Cuda {
            context,
            name,
            capability: (major, minor),
            functions: vec![],
        })
    }

    /// The best target for this card.
    pub fn target(&self) -> Target {
        match self.runs(Target::Sm90a) {
            true => Target::Sm90a,
            false => Target::Sm80,
        }
    }

    /// Whether the card runs code for a target.
    pub fn runs(&self, target: Target) -> bool {
        match target {
            Target::Sm80 => self.capability >= (8, 0),
            Target::Sm90a => self.capability == (9, 0),
            _ => false,
        }
    }
}

impl Cuda {
    /// Calls `f` with what the driver wants to know of a launch that is a node of a graph. It copies all of it before it
    /// returns.
    fn node<T>(
        &self,
        p: &Planned,
        f: impl FnOnce(*const sys::CUDA_KERNEL_NODE_PARAMS) -> Result<T, DriverError>,
    ) -> Result<T, String> {
        let mut pointers = pointers(&p.launch.arguments);
        let (blocks, threads) = (p.launch.shape.blocks, p.launch.shape.threads);
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func: self.functions[p.function],
            gridDimX: u32::try_from(blocks).map_err(|e| e.to_string())?,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: u32::try_from(threads).map_err(|e| e.to_string())?,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: dynamic(p.launch.shape)?,
            kernelParams: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        f(&parameters).map_err(refused)
    }
}

/// Dynamic shared memory of a launch.
fn dynamic(shape: Shape) -> Result<u32, String> {
    u32::try_from(shape.dynamic()).map_err(|e| e.to_string())
}

/// Where a launch's arguments are.
fn pointers(arguments: &[u64]) -> Vec<*mut c_void> {
    arguments
        .iter()
        .map(|a| a as *const u64 as *mut c_void)
        .collect()
}

impl Driver for Cuda {
    type Graph = Graph;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn load(&mut self, ptx: &str, kernels: &[(&str, u64)]) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let text = CString::new(ptx).map_err(|e| e.to_string())?;
        // SAFETY: the text is zero-terminated and outlives the call; the module is never unloaded, so its functions stay
        // valid as long as the context, which is kept beside them.
        self.functions = unsafe {
            let module = result::module::load_data(text.as_ptr().cast()).map_err(refused)?;
            let function = |(symbol, dynamic): &(&str, u64)| {
                let name = CString::new(*symbol).map_err(|e| e.to_string())?;
                let function = result::module::get_function(module, name).map_err(refused)?;
                if *dynamic > 0 {
                    let bytes = i32::try_from(*dynamic).map_err(|e| e.to_string())?;
                    let most =
                        sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                    result::function::set_function_attribute(function, most, bytes)
                        .map_err(refused)?;
                }
                Ok(function)
            };
            kernels
                .iter()
                .map(function)
                .collect::<Result<_, String>>()?
        };
        Ok(())
    }

    fn free_memory(&self) -> Result<u64, String> {
        self.context.bind_to_thread().map_err(refused)?;
        let (free, _) = result::mem_get_info().map_err(refused)?;
        Ok(free as u64)
    }

    fn allocate(&self, bytes: u64) -> io::Result<Buffer> {
        let other = |e: DriverError| io::Error::other(e.to_string());
        let bytes = usize::try_from(bytes.max(4)).map_err(io::Error::other)?;
        let bytes = bytes
            .checked_next_multiple_of(4)
            .ok_or_else(|| io::Error::other("size overflows"))?;
        self.context.bind_to_thread().map_err(other)?;
        let global = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        // SAFETY: the memory is `bytes` long, zeroed, seen by kernels and by this process at the same address, and freed
        // once, when the buffer is dropped; the context is kept until then.
        unsafe {
            let pointer = result::malloc_managed(bytes, global).map_err(other)?;
            let context = self.context.clone();
            let free = move || {
                let _ = context
                    .bind_to_thread()
                    .and_then(|()| result::memory_free(pointer));
            };
            let buffer = Buffer::foreign(pointer as *mut u8, bytes, Box::new(free));
            result::memset_d8_sync(pointer, 0, bytes).map_err(other)?;
            result::ctx::synchronize().map_err(other)?;
            Ok(buffer)
        }
    }

    fn launch(&mut self, function: usize, shape: Shape, arguments: &[u64]) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let mut pointers = pointers(arguments);
        let blocks = u32::try_from(shape.blocks).map_err(|e| e.to_string())?;
        let dynamic = dynamic(shape)?;
        // SAFETY: the plan made as many arguments of 8 bytes as the kernel takes, and checked that operands cover what it
        // touches; the driver copies them before the call returns. Shared memory is static, or as the plan says. The null
        // stream runs launches in order.
        unsafe {
            result::launch_kernel(
                self.functions[function],
                (blocks, 1, 1),
                (shape.threads as u32, 1, 1),
                dynamic,
                std::ptr::null_mut(),
                &mut pointers,
            )
        }
        .map_err(refused)
    }

    fn instantiate(&mut self, launches: &[Planned]) -> Result<Graph, String> {
        self.context.bind_to_thread().map_err(refused)?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the driver writes the new graph's handle.
        unsafe { sys::cuGraphCreate(&mut graph, 0).result() }.map_err(refused)?;
        let mut made = Graph {
            context: self.context.clone(),
            graph,
            ready: std::ptr::null_mut(),
            nodes: Vec::with_capacity(launches.len()),
        };
        for launch in launches {
            let before = made.nodes.last().copied();
            let node = self.node(launch, |parameters| {
                let mut node = std::ptr::null_mut();
                let before = before.as_slice();
                // SAFETY: the graph was made above, the node before in it; kernel and arguments are those of a launch that the
                // plan checked, and are read before the call returns.
                unsafe {
                    sys::cuGraphAddKernelNode_v2(
                        &mut node,
                        graph,
                        before.as_ptr(),
                        before.len(),
                        parameters,
                    )
                    .result()?;
                }
                Ok(node)
            })?;
            made.nodes.push(node);
        }
        // SAFETY: the graph is whole. No flags.
        let ready = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        made.ready = ready.map_err(refused)?;
        Ok(made)
    }

    fn update(&mut self, graph: &mut Graph, n: usize, to: &Planned) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let (ready, node) = (graph.ready, graph.nodes[n]);
        self.node(to, |parameters| {
            // SAFETY: the node is one of the graph that `ready` was made from, of the same kernel; arguments are as at a launch.
            // What is queued already keeps its own.
            unsafe { sys::cuGraphExecKernelNodeSetParams_v2(ready, node, parameters).result() }
        })
    }

    fn replay(&mut self, graph: &mut Graph) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        // SAFETY: the graph is ready, and its operands are alive: they are those of the run that asks for it. The null stream
        // runs it after all that was queued before.
        unsafe { result::graph::launch(graph.ready, std::ptr::null_mut()) }.map_err(refused)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        result::ctx::synchronize().map_err(refused)
    }
}
