//! Parameters in bf16 beside those in the program's real type ([`Slot::Rounded`]).
//!
//! Takes the parameter table; gives where a parameter lies rounded, and the launches of the entry `round`. Leaves to `lower` which contractions read it
//! there, and to `update` that an optimiser's launch writes it.

use super::launch_list::{Launch, LaunchList, Placement};
use super::layout::ParamTable;
use odec_program::kernel::{KernelSpec, Rows, Store};
use odec_program::{Access, Body, DType, Operand, Site, Size, Slot};

/// Columns of the launch's rows. Parameters begin at multiples of so many elements, and what is trained ends at one.
const COLUMNS: u64 = 16;

/// Where the parameter is rounded that begins at a byte of [`Slot::Params`].
pub fn place(offset: u64, real: DType) -> Operand {
    Operand::at(Slot::Rounded, offset / real.bytes() * DType::Bf16.bytes())
}

/// The launches of `round`.
pub fn rounding(table: &ParamTable) -> LaunchList {
    let mut code = LaunchList::default();
    round(&mut code, table.bytes, table.real);
    code
}

/// Rounds the first `bytes` of the parameters.
pub(super) fn round(code: &mut LaunchList, bytes: u64, real: DType) {
    let rows = bytes / real.bytes() / COLUMNS;
    let size = Size::fixed(rows * COLUMNS);
    let mut buffer =
        |name: &str, dtype, home| code.buffer(name, dtype, size, Placement::Fixed(home));
    let from = buffer("params", real, Operand::at(Slot::Params, 0));
    let to = buffer("rounded", DType::Bf16, place(0, real));
    let mut body = Body::default();
    let value = body.load(0, Access::full(COLUMNS));
    let store = Store {
        operand: 1,
        access: Access::full(COLUMNS),
        value,
    };
    let kernel = Rows {
        dtype: real,
        cols: COLUMNS,
        operands: vec![real, DType::Bf16],
        uniforms: 0,
        body,
        stores: vec![store],
    };
    code.launches.push(Launch {
        spec: KernelSpec::Rows(kernel).into(),
        args: vec![from, to],
        dims: vec![Size::fixed(rows), Size::ONE],
        coeffs: vec![],
        site: Site::update("round").into(),
        guard: None,
        held: None,
    });
}
