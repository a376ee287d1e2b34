//! The passes end to end: hand-built decoders, planned and run on the reference device.

mod arguments;
mod bodies;
mod capacity;
mod card;
mod context;
mod convolution;
mod cookbook;
mod costs;
mod depth;
mod double;
mod drift;
mod epilogue_fusion;
mod exits;
mod field_functions;
mod files;
mod flows;
mod functions;
mod grids;
mod guards;
mod halting;
mod images;
mod labelled;
mod launches;
mod learned;
mod library;
mod lora;
mod losses;
mod measured;
mod memory;
mod moe;
mod numbers;
mod ops;
mod optimiser;
mod origins;
mod pictures;
mod plain;
mod planning;
mod precision;
mod product_fusion;
mod programs;
mod quantized;
mod random;
#[path = "../front/random_body.rs"]
mod random_body;
mod reports;
mod rounded_parameters;
mod routed;
mod row_chunking;
mod several;
mod solves;
mod source;
mod spectral;
mod starts;
mod systems;
mod time_dependent;
mod translators;
mod windows;
mod work;

/// As the program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
