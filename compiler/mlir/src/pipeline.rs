//! From MLIR text to object code.
//!
//! Takes the text that the emitters write; gives LLVM IR, assembly or an object file for a target.
//! One [`Pipeline`] serves many kernels, one after the other; it stays on its thread. Leaves files,
//! caching and linking to [`crate::codegen`], [`crate::cache`] and [`mod@crate::link`].

use crate::ffi::{self, Llvm};
use melior::Context;
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::ir::operation::OperationLike;
use melior::pass::PassManager;
use melior::utility::{
    parse_pass_pipeline, register_all_dialects, register_all_llvm_translations, register_all_passes,
};
use odec_program::Target;
use std::cell::RefCell;
use std::rc::Rc;

const OF_GPUS: &str = "builtin.module(canonicalize,cse,convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts,canonicalize,cse)";
/// `canonicalize` and `cse` are left out: LLVM's passes do the same, and text sections are as large without them.
const OF_PROCESSORS: &str =
    "builtin.module(convert-scf-to-cf,convert-to-llvm,reconcile-unrealized-casts)";

/// The passes of MLIR; part of the cache's key.
pub fn passes(target: Target) -> &'static str {
    match target.is_gpu() {
        true => OF_GPUS,
        false => OF_PROCESSORS,
    }
}

/// An MLIR context with everything registered, and the messages it has produced.
pub struct Pipeline {
    context: Context,
    messages: Rc<RefCell<Vec<String>>>,
}

impl Default for Pipeline {
    fn default() -> Self {
        Pipeline::new()
    }
}

impl Pipeline {
    pub fn new() -> Pipeline {
        ffi::construct();
        let registry = DialectRegistry::new();
        register_all_dialects(&registry);
        register_all_passes();
        let context = Context::new_with_threading(false);
        context.append_dialect_registry(&registry);
        for dialect in [
            "arith", "cf", "func", "llvm", "math", "nvvm", "scf", "vector",
        ] {
            context.get_or_load_dialect(dialect);
        }
        register_all_llvm_translations(&context);
        let messages = Rc::new(RefCell::new(Vec::new()));
        let sink = messages.clone();
        context.attach_diagnostic_handler(move |d| {
            sink.borrow_mut().push(format!("{}: {d}", d.location()));
            true
        });
        Pipeline { context, messages }
    }

    /// Parses, verifies, lowers and optimises the text of a module.
    ///
    /// # Errors
    /// What MLIR or LLVM say.
    fn lower(&self, text: &str, target: Target) -> Result<Llvm, String> {
        self.messages.borrow_mut().clear();
        let mut module =
            Module::parse(&self.context, text).ok_or_else(|| self.said("cannot be parsed"))?;
        if !module.as_operation().verify() {
            return Err(self.said("is not valid"));
        }
        let manager = PassManager::new(&self.context);
        parse_pass_pipeline(manager.as_operation_pass_manager(), passes(target))
            .map_err(|e| e.to_string())?;
        manager
            .run(&mut module)
            .map_err(|_| self.said("cannot be lowered"))?;
        let llvm = Llvm::translate(&module, target, ffi::features(target, text))?;
        llvm.optimise()?;
        Ok(llvm)
    }

    fn said(&self, what: &str) -> String {
        format!(
            "the MLIR text {what}: {}",
            self.messages.borrow().join("; ")
        )
    }

    /// An ELF object; PTX, which is a kind of assembly, for GPUs.
    ///
    /// # Errors
    /// What MLIR or LLVM say.
    pub fn object(&self, text: &str, target: Target) -> Result<Vec<u8>, String> {
        self.lower(text, target)?.emit(target.is_gpu())
    }

    /// Optimised LLVM IR, for reading.
    ///
    /// # Errors
    /// What MLIR or LLVM say.
    pub fn llvm_ir(&self, text: &str, target: Target) -> Result<String, String> {
        Ok(self.lower(text, target)?.text())
    }

    /// Assembly, for reading.
    ///
    /// # Errors
    /// What MLIR or LLVM say.
    pub fn assembly(&self, text: &str, target: Target) -> Result<String, String> {
        Ok(String::from_utf8_lossy(&self.lower(text, target)?.emit(true)?).into_owned())
    }
}
