//! CUDA's driver, loaded at run time: building odec needs no CUDA, and a machine without it gets an error message.

#![allow(unsafe_code)]

use super::graphs::Planned;
use super::plan::Mapped;
use super::{CudaError, Driver};
use crate::device::memory::{Buffer, WORD, Words};
use cudarc::driver::{CudaContext, DriverError, result, sys};
use odec_program::gpu::Shape;
use std::ffi::{CString, c_void};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The first version of the driver, as it counts them, that has the call for times between events,
const MEASURES: i32 = 12080;
/// and that has edges of graphs on which the next launch begins early.
const BEGINS_EARLY: i32 = 12030;

/// One card.
pub(super) struct Cuda {
    context: Arc<CudaContext>,
    name: String,
    capability: (i32, i32),
    functions: Vec<sys::CUfunction>,
    /// What was reserved.
    memories: Vec<sys::CUdeviceptr>,
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: all of it was reserved in this context and nobody else frees it; nothing that is queued uses it any more.
        unsafe {
            if self.context.bind_to_thread().is_ok() {
                let _ = result::ctx::synchronize();
                for memory in &self.memories {
                    let _ = result::free_sync(*memory);
                }
            }
        }
    }
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

/// A moment of the stream.
pub(super) struct Event {
    context: Arc<CudaContext>,
    event: sys::CUevent,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the driver made it in this context, and nobody else has it. It may be destroyed before it is reached.
        unsafe {
            if self.context.bind_to_thread().is_ok() {
                let _ = result::event::destroy(self.event);
            }
        }
    }
}

/// The edge of programmatic dependent launch: the next kernel begins when all blocks of the first have permitted it
/// (`griddepcontrol.launch_dependents`), and waits by itself until they are done.
const EARLY: sys::CUgraphEdgeData = sys::CUgraphEdgeData {
    from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
    to_port: 0,
    type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
    reserved: [0; 5],
};

/// The driver's version, as it counts them: 12030 is CUDA 12.3.
fn version() -> Result<i32, String> {
    let mut version = 0;
    // SAFETY: the driver writes its version.
    let asked = unsafe { sys::cuDriverGetVersion(&mut version).result() };
    asked.map_err(refused)?;
    Ok(version)
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
        Ok(Cuda {
            context,
            name,
            capability: (major, minor),
            functions: vec![],
            memories: vec![],
        })
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
        let maps = encoded(&p.launch.maps)?;
        let mut pointers = pointers(&p.launch.arguments, &maps);
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

/// Bytes of a log of the driver's compiler.
const LOG: usize = 1 << 20;
/// The environment variable that asks for that log where all went well, too.
const SHOW_LOG: &str = "ODEC_JIT_LOG";

/// Loads a module: PTX, which the driver compiles, or what an assembler made of it. An error holds what the compiler says.
fn module(code: &[u8]) -> Result<sys::CUmodule, String> {
    use sys::CUjit_option_enum::{
        CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE,
    };
    // Text ends with a zero; the end of an assembled module is in itself.
    let image: Vec<u8> = code.iter().copied().chain([0]).collect();
    let (mut errors, mut notes) = (vec![0u8; LOG], vec![0u8; LOG]);
    let mut options = [
        (
            CU_JIT_ERROR_LOG_BUFFER,
            errors.as_mut_ptr().cast::<c_void>(),
        ),
        (CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, number(LOG)),
        (CU_JIT_INFO_LOG_BUFFER, notes.as_mut_ptr().cast()),
        (CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, number(LOG)),
        (CU_JIT_LOG_VERBOSE, number(1)),
    ]
    .into_iter()
    .unzip::<_, _, Vec<_>, Vec<_>>();
    let mut module = std::ptr::null_mut();
    // SAFETY: the image outlives the call and ends with a zero; there are as many options as values; both logs are as long as
    // their options say and outlive the call, which writes no more than that and how long they became.
    let loaded = unsafe {
        sys::cuModuleLoadDataEx(
            &mut module,
            image.as_ptr().cast(),
            options.0.len() as u32,
            options.0.as_mut_ptr(),
            options.1.as_mut_ptr(),
        )
        .result()
    };
    let said = [("errors", &errors), ("notes", &notes)].map(|(what, log)| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG);
        let text = String::from_utf8_lossy(&log[..end]).trim().to_string();
        (what, text)
    });
    let said: String = (said.iter().filter(|(_, text)| !text.is_empty()))
        .map(|(what, text)| format!("\n{what} of the driver's compiler:\n{text}"))
        .collect();
    match loaded {
        Ok(()) => {
            if std::env::var_os(SHOW_LOG).is_some() {
                // Nobody may be there to read it.
                let _ = writeln!(io::stderr(), "the module was loaded{said}");
            }
            Ok(module)
        }
        Err(e) => Err(format!("the module is not taken: {e}{said}")),
    }
}

/// A number where the driver wants a pointer.
fn number(n: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(n)
}

/// Dynamic shared memory of a launch.
fn dynamic(shape: Shape) -> Result<u32, String> {
    u32::try_from(shape.dynamic()).map_err(|e| e.to_string())
}

/// Where a launch's arguments are, then its maps.
fn pointers(arguments: &[u64], maps: &[sys::CUtensorMap]) -> Vec<*mut c_void> {
    let maps = maps.iter().map(|m| m as *const _ as *mut c_void);
    arguments
        .iter()
        .map(|a| a as *const u64 as *mut c_void)
        .chain(maps)
        .collect()
}

/// Tensor maps as kernels take them.
fn encoded(maps: &[Mapped]) -> Result<Vec<sys::CUtensorMap>, String> {
    use sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    use sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
    use sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE;
    use sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
    use sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B;
    let encode = |Mapped { address, map }: &Mapped| {
        let rank = map.extents.len();
        // As many of each as the driver reads.
        if (map.strides.len() + 1, map.tile.len()) != (rank, rank) {
            return Err("a tensor map of several ranks".into());
        }
        let tile = map.tile.iter().map(|x| u32::try_from(*x));
        let tile = tile.collect::<Result<Vec<u32>, _>>();
        let tile = tile.map_err(|e| e.to_string())?;
        let every = vec![1u32; rank];
        let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the driver reads `rank` numbers of each list, of strides one less, and writes the map, which is aligned as it
        // wants. It does not look at the operand.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut encoded,
                CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                rank as u32,
                *address as *mut c_void,
                map.extents.as_ptr(),
                map.strides.as_ptr(),
                tile.as_ptr(),
                every.as_ptr(),
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
            .result()
        }
        .map_err(refused)?;
        Ok(encoded)
    };
    maps.iter().map(encode).collect()
}

impl Driver for Cuda {
    type Graph = Graph;
    type Event = Event;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn capability(&self) -> (i32, i32) {
        self.capability
    }

    fn load(&mut self, code: &[u8], kernels: &[(&str, u64)]) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let module = module(code)?;
        // SAFETY: the module is never unloaded, so its functions stay valid as long as the context, which is kept beside them.
        self.functions = unsafe {
            let function = |(symbol, dynamic): &(&str, u64)| {
                let name = CString::new(*symbol).map_err(|e| e.to_string())?;
                let function = result::module::get_function(module, name);
                let function = function.map_err(|e| format!("kernel {symbol}: {e}"))?;
                if *dynamic > 0 {
                    let bytes = i32::try_from(*dynamic).map_err(|e| e.to_string())?;
                    let most =
                        sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                    result::function::set_function_attribute(function, most, bytes).map_err(
                        |e| format!("kernel {symbol}, {bytes} bytes of shared memory: {e}"),
                    )?;
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

    fn allocate(&mut self, bytes: u64) -> Result<u64, String> {
        self.context.bind_to_thread().map_err(refused)?;
        let bytes = bytes.max(WORD).checked_next_multiple_of(WORD);
        let bytes = bytes.and_then(|b| usize::try_from(b).ok());
        let bytes = bytes.ok_or("size overflows")?;
        // SAFETY: the memory is `bytes` long, nobody else has it, and it is freed once, with this driver; the null stream
        // zeroes it before all that is queued later.
        unsafe {
            let memory = result::malloc_sync(bytes).map_err(refused)?;
            self.memories.push(memory);
            result::memset_d8_async(memory, 0, bytes, std::ptr::null_mut()).map_err(refused)?;
            Ok(memory)
        }
    }

    fn stage(&mut self, bytes: u64) -> io::Result<Buffer> {
        let other = |e: DriverError| io::Error::other(e.to_string());
        let bytes = bytes.max(WORD).checked_next_multiple_of(WORD);
        let bytes = bytes.and_then(|b| usize::try_from(b).ok());
        let bytes = bytes.ok_or_else(|| io::Error::other("size overflows"))?;
        self.context.bind_to_thread().map_err(other)?;
        let context = self.context.clone();
        // SAFETY: the memory is `bytes` long, page-locked, aligned to a page, and this process's; it is freed once, when the buffer
        // is dropped and nothing is queued that copies from or to it; the context is kept until then.
        unsafe {
            let pointer = result::malloc_host(bytes, 0).map_err(other)?;
            // A number, as pointers stay in their thread.
            let address = pointer.expose_provenance();
            let free = move || {
                let idle = context.bind_to_thread();
                if idle.and_then(|()| result::ctx::synchronize()).is_ok() {
                    let _ = result::free_host(std::ptr::with_exposed_provenance_mut(address));
                }
            };
            std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes);
            Ok(Buffer::foreign(pointer.cast(), bytes, Box::new(free)))
        }
    }

    fn copy_in(&mut self, from: Words, to: u64) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        // SAFETY: the place on the card is as long, as the caller found it among what was reserved. `from` is read when the copy's
        // turn comes, or, where it is not page-locked, before the call returns; until then the executor neither drops it nor writes to it.
        unsafe { result::memcpy_htod_async(to, from, std::ptr::null_mut()) }.map_err(refused)
    }

    fn copy_out(&mut self, from: u64, to: Words) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let bytes = size_of_val(to);
        // SAFETY: as in `copy_in`, the other way round; cells may be written through a shared view. Nobody looks at them before an
        // event after this was waited for.
        let copied = unsafe {
            let to = to.as_ptr().cast_mut().cast::<c_void>();
            sys::cuMemcpyDtoHAsync_v2(to, from, bytes, std::ptr::null_mut()).result()
        };
        copied.map_err(refused)
    }

    fn fill(&mut self, address: u64, words: u64, with: u32) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let words = usize::try_from(words).map_err(|e| e.to_string())?;
        // SAFETY: so many words were reserved there.
        let filled =
            unsafe { sys::cuMemsetD32Async(address, with, words, std::ptr::null_mut()).result() };
        filled.map_err(refused)
    }

    fn launch(&mut self, p: &Planned) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        let shape = p.launch.shape;
        let maps = encoded(&p.launch.maps)?;
        let mut pointers = pointers(&p.launch.arguments, &maps);
        let blocks = u32::try_from(shape.blocks).map_err(|e| e.to_string())?;
        let dynamic = dynamic(shape)?;
        // SAFETY: the plan made as many arguments of 8 bytes, and as many maps, as the kernel takes, and checked that operands
        // cover what it touches; the driver copies them before the call returns. Shared memory is static, or as the plan says.
        // The null stream runs launches in order.
        unsafe {
            result::launch_kernel(
                self.functions[p.function],
                (blocks, 1, 1),
                (shape.threads as u32, 1, 1),
                dynamic,
                std::ptr::null_mut(),
                &mut pointers,
            )
        }
        .map_err(refused)
    }

    fn instantiate(&mut self, launches: &[Planned], early: bool) -> Result<Graph, String> {
        self.context.bind_to_thread().map_err(refused)?;
        let early = early && version()? >= BEGINS_EARLY;
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
                // The call that adds a node knows only full dependencies; an early one is added after it.
                let plain = if early { 0 } else { before.len() };
                // SAFETY: the graph was made above, the node before in it; kernel and arguments are those of a launch that the
                // plan checked, and are read before the call returns.
                unsafe {
                    sys::cuGraphAddKernelNode_v2(
                        &mut node,
                        graph,
                        before.as_ptr(),
                        plain,
                        parameters,
                    )
                    .result()?;
                    if early && !before.is_empty() {
                        sys::cuGraphAddDependencies_v2(graph, before.as_ptr(), &node, &EARLY, 1)
                            .result()?;
                    }
                }
                Ok(node)
            });
            let named = |why: String| format!("{why}; refused was a graph's node, {launch}");
            made.nodes.push(node.map_err(named)?);
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

    fn record(&mut self, timed: bool) -> Result<Event, String> {
        self.context.bind_to_thread().map_err(refused)?;
        use sys::CUevent_flags_enum::{CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING};
        // Who waits sleeps: a processor may have better to do than to look again and again.
        let flags = match timed {
            true => CU_EVENT_BLOCKING_SYNC as u32,
            false => CU_EVENT_BLOCKING_SYNC as u32 | CU_EVENT_DISABLE_TIMING as u32,
        };
        let mut event = std::ptr::null_mut();
        // SAFETY: the driver writes the new event's handle; the null stream has it after all that was queued before.
        unsafe {
            sys::cuEventCreate(&mut event, flags)
                .result()
                .map_err(refused)?;
            let made = Event {
                context: self.context.clone(),
                event,
            };
            result::event::record(made.event, std::ptr::null_mut()).map_err(refused)?;
            Ok(made)
        }
    }

    fn wait(&mut self, event: &Event) -> Result<(), String> {
        self.context.bind_to_thread().map_err(refused)?;
        // SAFETY: the event was recorded and lives.
        unsafe { result::event::synchronize(event.event) }.map_err(refused)
    }

    fn between(&mut self, from: &Event, to: &Event) -> Result<Option<Duration>, String> {
        self.context.bind_to_thread().map_err(refused)?;
        if version()? < MEASURES {
            return Err("it measures launches from CUDA 12.8 on only".into());
        }
        // SAFETY: both events were recorded, with times, and live.
        let milliseconds = unsafe {
            result::event::synchronize(to.event).map_err(refused)?;
            result::event::elapsed(from.event, to.event).map_err(refused)?
        };
        Ok(Some(Duration::from_secs_f64(
            f64::from(milliseconds.max(0.0)) / 1e3,
        )))
    }
}
