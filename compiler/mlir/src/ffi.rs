//! The only unsafe code of this crate: LLVM's C API, wrapped so that every handle is freed once.
//!
//! Takes an MLIR module in the LLVM dialect; gives optimised LLVM IR as text, object code or PTX. Leaves
//! the MLIR passes to [`crate::pipeline`].

use llvm_sys::analysis::{LLVMVerifierFailureAction, LLVMVerifyModule};
use llvm_sys::core::*;
use llvm_sys::error::{LLVMDisposeErrorMessage, LLVMGetErrorMessage};
use llvm_sys::prelude::*;
use llvm_sys::target::*;
use llvm_sys::target_machine::*;
use llvm_sys::transforms::pass_builder::*;
use melior::ir::Module;
use odec_program::Target;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::Once;

/// The version of PTX, which says how new a driver must be: 8.0 came with CUDA 12.0.
const PTX: &CStr = c"+ptx80";
/// LLVM's passes for GPUs; part of the cache's key.
const OF_GPUS: &CStr = c"default<O2>";
/// LLVM's passes for processors; part of the cache's key. The emitters write vectors, unrolled loops and values in registers: what is left is to fold, to
/// take out of loops what does not change in them, and to simplify their counters. `default<O2>` takes four times as long, for code that is no smaller and
/// no faster (docs/guide/profile.md).
const OF_PROCESSORS: &CStr = c"always-inline,globaldce,function<eager-inv>(early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(loop-rotate,licm),loop(indvars),early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";
/// What is done to modules beside the passes of MLIR and LLVM; part of the cache's key.
const MARKS: &str = "nounwind, vector widths, convergent assembly";
/// Tile registers: their instructions are only ever written by name, for contractions in pairs, which programs for
/// [`Target::Amx`] alone have.
const TILES: &CStr = c"+amx-tile,+amx-bf16";
/// The instructions of [`Target::Avx512Bf16`], for kernels that name one. LLVM could choose others of them by itself.
const PAIRS: &CStr = c"+avx512bf16";
/// How kernels name these instructions.
const PAIRS_NAMED: &str = "llvm.x86.avx512bf16.";
/// LLVM's index of the attributes of a function itself (`LLVMAttributeFunctionIndex`).
const FUNCTION: u32 = u32::MAX;

// Where the constructors of LLVM begin and end in a program that keeps them in a section of their own, between two symbols (`constructors.ld`).
// Both are zero in a program that was linked without: there the system has called them.
std::arch::global_asm!(
    ".weak llvm_constructors_begin",
    ".weak llvm_constructors_end",
    ".hidden odec_llvm_constructors",
    ".globl odec_llvm_constructors",
    ".pushsection .data.rel.ro.odec_llvm_constructors, \"aw\", @progbits",
    ".balign 8",
    "odec_llvm_constructors:",
    ".quad llvm_constructors_begin",
    ".quad llvm_constructors_end",
    ".popsection",
);

unsafe extern "C" {
    static odec_llvm_constructors: [*const unsafe extern "C" fn(); 2];
}

/// Runs the static constructors of LLVM and MLIR if nobody has: before anything else of them is called.
pub fn construct() {
    static ONCE: Once = Once::new();
    // SAFETY: what lies between the two addresses are the constructors, which the linker has collected there; each is called once, and before what it
    // constructs is used.
    ONCE.call_once(|| unsafe {
        let [mut next, stop] = odec_llvm_constructors;
        while next < stop {
            (*next)();
            next = next.add(1);
        }
    });
}

/// An LLVM module with its context.
pub struct Llvm {
    context: LLVMContextRef,
    module: LLVMModuleRef,
    machine: Machine,
    target: Target,
}

impl Drop for Llvm {
    fn drop(&mut self) {
        // SAFETY: both were made by `translate` and are freed only here, the module before its context.
        unsafe {
            LLVMDisposeModule(self.module);
            LLVMContextDispose(self.context);
        }
    }
}

impl Llvm {
    /// Translates a module of the LLVM dialect for a target; `features` are those of its text ([`features`]).
    ///
    /// # Errors
    /// A message when MLIR cannot translate the module or LLVM's verifier rejects it.
    pub fn translate(module: &Module, target: Target, features: &CStr) -> Result<Llvm, String> {
        let machine = Machine::new(target, features)?;
        // SAFETY: the context outlives the module made in it (see `Drop`); the operation is alive because
        // it is borrowed; the opaque pointer types of mlir-sys and llvm-sys name the same C types.
        let llvm = unsafe {
            let context = LLVMContextCreate();
            let operation = module.as_operation().to_raw();
            let raw = mlir_sys::mlirTranslateModuleToLLVMIR(operation, context.cast());
            if raw.is_null() {
                LLVMContextDispose(context);
                return Err("MLIR could not translate the module to LLVM IR".into());
            }
            Llvm {
                context,
                module: raw.cast(),
                machine,
                target,
            }
        };
        llvm.describe_target();
        if target.is_gpu() {
            llvm.keep_threads_together();
        }
        llvm.verify()?;
        Ok(llvm)
    }

    /// Sets triple, data layout and the attributes of functions.
    fn describe_target(&self) {
        let target = self.target;
        let width = (target.vector_bytes() * 8).to_string();
        let widths: &[&str] = match target.is_gpu() {
            true => &[],
            false => &["prefer-vector-width", "min-legal-vector-width"],
        };
        // SAFETY: module, context and machine are alive; strings are passed with their length or are
        // zero-terminated; the layout is freed after it was copied into the module.
        unsafe {
            LLVMSetTarget(self.module, triple(target).as_ptr());
            let layout = LLVMCreateTargetDataLayout(self.machine.0);
            LLVMSetModuleDataLayout(self.module, layout);
            LLVMDisposeTargetData(layout);
            let nounwind = LLVMGetEnumAttributeKindForName(c"nounwind".as_ptr(), 8);
            let mut function = LLVMGetFirstFunction(self.module);
            while !function.is_null() {
                let attribute = LLVMCreateEnumAttribute(self.context, nounwind, 0);
                LLVMAddAttributeAtIndex(function, FUNCTION, attribute);
                for name in widths {
                    let attribute = LLVMCreateStringAttribute(
                        self.context,
                        name.as_ptr().cast(),
                        name.len() as u32,
                        width.as_ptr().cast(),
                        width.len() as u32,
                    );
                    LLVMAddAttributeAtIndex(function, FUNCTION, attribute);
                }
                function = LLVMGetNextFunction(function);
            }
        }
    }

    /// Marks every call of inline assembly `convergent`: its instructions are for all threads of a warp or warpgroup (`.aligned`), so
    /// no pass may move them to where fewer get. MLIR's operation for inline assembly has no such mark; its intrinsics have it.
    fn keep_threads_together(&self) {
        // SAFETY: the module is alive, and so are its functions, blocks and instructions, of which none is removed here.
        unsafe {
            let convergent = LLVMGetEnumAttributeKindForName(c"convergent".as_ptr(), 10);
            let mut function = LLVMGetFirstFunction(self.module);
            while !function.is_null() {
                let mut block = LLVMGetFirstBasicBlock(function);
                while !block.is_null() {
                    let mut instruction = LLVMGetFirstInstruction(block);
                    while !instruction.is_null() {
                        let call = LLVMIsACallInst(instruction);
                        if !call.is_null() && !LLVMIsAInlineAsm(LLVMGetCalledValue(call)).is_null()
                        {
                            let mark = LLVMCreateEnumAttribute(self.context, convergent, 0);
                            LLVMAddCallSiteAttribute(call, FUNCTION, mark);
                        }
                        instruction = LLVMGetNextInstruction(instruction);
                    }
                    block = LLVMGetNextBasicBlock(block);
                }
                function = LLVMGetNextFunction(function);
            }
        }
    }

    fn verify(&self) -> Result<(), String> {
        let mut message: *mut c_char = ptr::null_mut();
        // SAFETY: the module is alive; the message is owned by us and freed by `take_message`.
        unsafe {
            let bad = LLVMVerifyModule(
                self.module,
                LLVMVerifierFailureAction::LLVMReturnStatusAction,
                &mut message,
            );
            let text = take_message(message);
            if bad != 0 { Err(text) } else { Ok(()) }
        }
    }

    /// Runs LLVM's optimisation pipeline. Vectorisation is ours, so LLVM's is off.
    ///
    /// # Errors
    /// LLVM's message.
    pub fn optimise(&self) -> Result<(), String> {
        // SAFETY: module and machine are alive; the options are freed here; a non-null error is consumed by
        // `LLVMGetErrorMessage`, and its text freed after it was copied.
        unsafe {
            let options = LLVMCreatePassBuilderOptions();
            LLVMPassBuilderOptionsSetLoopVectorization(options, 0);
            LLVMPassBuilderOptionsSetSLPVectorization(options, 0);
            let passes = optimisation(self.target);
            let error = LLVMRunPasses(self.module, passes.as_ptr(), self.machine.0, options);
            LLVMDisposePassBuilderOptions(options);
            if error.is_null() {
                return Ok(());
            }
            let message = LLVMGetErrorMessage(error);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            Err(text)
        }
    }

    /// The LLVM IR as text.
    pub fn text(&self) -> String {
        // SAFETY: the module is alive; the string is owned by us and freed by `take_message`.
        unsafe { take_message(LLVMPrintModuleToString(self.module)) }
    }

    /// Object code (ELF, position independent), or assembly text with `assembly`.
    ///
    /// # Errors
    /// LLVM's message.
    pub fn emit(&self, assembly: bool) -> Result<Vec<u8>, String> {
        let kind = match assembly {
            true => LLVMCodeGenFileType::LLVMAssemblyFile,
            false => LLVMCodeGenFileType::LLVMObjectFile,
        };
        let mut message: *mut c_char = ptr::null_mut();
        let mut buffer: LLVMMemoryBufferRef = ptr::null_mut();
        // SAFETY: module and machine are alive; on success the buffer is ours, is copied within its size and
        // freed; on failure the message is ours and freed by `take_message`.
        unsafe {
            let bad = LLVMTargetMachineEmitToMemoryBuffer(
                self.machine.0,
                self.module,
                kind,
                &mut message,
                &mut buffer,
            );
            if bad != 0 {
                return Err(take_message(message));
            }
            let start = LLVMGetBufferStart(buffer).cast::<u8>();
            let bytes = std::slice::from_raw_parts(start, LLVMGetBufferSize(buffer)).to_vec();
            LLVMDisposeMemoryBuffer(buffer);
            Ok(bytes)
        }
    }
}

/// Copies and frees a message of LLVM; null is an empty one.
///
/// # Safety
/// `message` is null or a zero-terminated string owned by the caller, made by LLVM.
unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        LLVMDisposeMessage(message);
        text
    }
}

/// A code generator for one target.
struct Machine(LLVMTargetMachineRef);

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made by `new` and freed only here.
        unsafe { LLVMDisposeTargetMachine(self.0) }
    }
}

impl Machine {
    fn new(target: Target, features: &CStr) -> Result<Machine, String> {
        static ONCE: Once = Once::new();
        // SAFETY: LLVM's registry is written once, before any lookup.
        ONCE.call_once(|| unsafe {
            LLVMInitializeX86TargetInfo();
            LLVMInitializeX86Target();
            LLVMInitializeX86TargetMC();
            LLVMInitializeX86AsmPrinter();
            LLVMInitializeNVPTXTargetInfo();
            LLVMInitializeNVPTXTarget();
            LLVMInitializeNVPTXTargetMC();
            LLVMInitializeNVPTXAsmPrinter();
        });
        let triple = triple(target);
        let cpu = CString::new(cpu(target)).expect("names of CPUs contain no zero byte");
        let mut found: LLVMTargetRef = ptr::null_mut();
        let mut message: *mut c_char = ptr::null_mut();
        // SAFETY: strings are zero-terminated and outlive the calls; the message is ours on failure.
        unsafe {
            if LLVMGetTargetFromTriple(triple.as_ptr(), &mut found, &mut message) != 0 {
                return Err(take_message(message));
            }
            let machine = LLVMCreateTargetMachine(
                found,
                triple.as_ptr(),
                cpu.as_ptr(),
                features.as_ptr(),
                LLVMCodeGenOptLevel::LLVMCodeGenLevelDefault,
                LLVMRelocMode::LLVMRelocPIC,
                LLVMCodeModel::LLVMCodeModelDefault,
            );
            if machine.is_null() {
                Err(format!("LLVM has no code generator for {target}"))
            } else {
                Ok(Machine(machine))
            }
        }
    }
}

/// LLVM's name of the instruction set. With [`features`] and the texts of kernels, this is all that code depends on of a target.
pub fn cpu(target: Target) -> &'static str {
    match target {
        Target::Portable => "x86-64-v2",
        Target::Avx2 => "x86-64-v3",
        Target::Avx512 | Target::Avx512Bf16 | Target::Amx => "x86-64-v4",
        Target::Sm80 | Target::Sm90a => target.name(),
    }
}

/// What LLVM is told of a target beside its instruction set, for a kernel of this MLIR text. Kernels without dot products of pairs are the
/// same for all targets of AVX-512, and compiled once.
pub fn features(target: Target, text: &str) -> &'static CStr {
    match target {
        Target::Avx512Bf16 if text.contains(PAIRS_NAMED) => PAIRS,
        Target::Portable | Target::Avx2 | Target::Avx512 | Target::Avx512Bf16 | Target::Amx => {
            TILES
        }
        Target::Sm80 | Target::Sm90a => PTX,
    }
}

fn triple(target: Target) -> &'static CStr {
    match target.is_gpu() {
        true => c"nvptx64-nvidia-cuda",
        false => c"x86_64-unknown-linux-gnu",
    }
}

fn optimisation(target: Target) -> &'static CStr {
    match target.is_gpu() {
        true => OF_GPUS,
        false => OF_PROCESSORS,
    }
}

/// What else than its text and the passes of MLIR decides a module's code: LLVM's version, its passes, and marks.
pub fn code_generator(target: Target) -> String {
    let passes = optimisation(target).to_string_lossy();
    format!("LLVM {}, {passes}, {MARKS}", llvm_version())
}

/// LLVM's version, `22.1.8`.
pub fn llvm_version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three valid places to write to.
    unsafe { LLVMGetVersion(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}
