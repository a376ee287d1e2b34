//! Wide rows in pieces: the same bits in less memory.

use crate::memory::{AT, model};
use crate::numbers::{executor, results};
use crate::systems::options;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{Assembled, ModelParts, Options, assemble};
use odec_program::{Bindings, Entry, Pieces};

const WHOLE: u64 = u64::MAX;

fn assembled(flow: &str, train: &str, fusion: Fusion, piece: u64) -> Assembled {
    let (built, text) = model(flow, 2, train);
    let options = Options {
        fusion,
        piece,
        ..options()
    };
    assemble(&ModelParts::new(&built, &text), options).unwrap_or_else(|e| panic!("{flow}: {e}"))
}

/// Bits of logits, loss and gradients, at several sizes.
fn bits(a: &Assembled) -> Vec<u64> {
    let mut out = Vec::new();
    let mut e = executor(&a.manifest);
    // Less than a piece, whole pieces, and a last one that is not whole.
    for at in [
        AT,
        Bindings::new(1, 5),
        Bindings::new(2, 64),
        Bindings::new(1, 33),
    ] {
        out.extend(results(&mut e, at, 250));
    }
    out
}

#[test]
fn pieces_change_no_bit() {
    for (flow, train, fusion) in [
        ("lie(att, ffn)", "store", Fusion::On),
        ("lie(att, ffn)", "store;  precision bf16", Fusion::On),
        ("lie(att, ffn)", "store;  precision f64", Fusion::On),
        ("rk4(layer)", "revolve(slots: 1)", Fusion::On),
        ("own(layer)", "store", Fusion::Off),
        ("pcformer(layer, m: 3)", "store", Fusion::On),
    ] {
        let whole = assembled(flow, train, fusion, WHOLE);
        let want = bits(&whole);
        // Of 16 rows and, in f32, of 64.
        for piece in [8 << 10, 1 << 16] {
            let cut = assembled(flow, train, fusion, piece);
            let entries = &cut.manifest.program.entries;
            let n = |e: &str| entries[e].pieces.len();
            assert!(n("grad") > 0 && n("loss") > 0, "{flow}, {train}, {piece}");
            let got = bits(&cut);
            let other = (0..want.len()).find(|i| got[*i] != want[*i]);
            let pair = other.map(|i| [got[i], want[i]].map(f64::from_bits));
            assert_eq!(
                other, None,
                "{flow}, {train}, {fusion:?}, {piece}: {pair:?}"
            );
        }
    }
}

#[test]
fn logits_take_the_room_of_one_piece() {
    let arena = |piece| {
        let a = assembled("lie(att, ffn)", "revolve(slots: 1)", Fusion::On, piece);
        let grad = a.memory.iter().find(|m| m.entry == "grad").unwrap();
        grad.arena
    };
    // 128 tokens, a vocabulary of 256: 128 KiB, of which a piece of 16 rows has an eighth.
    let (whole, cut) = (arena(WHOLE), arena(16 << 10));
    // Gradients lie in the room of whole ones.
    assert!(cut + (88 << 10) < whole, "{cut} of {whole}");
}

#[test]
fn a_run_launches_every_piece_once() {
    let a = assembled("lie(att, ffn)", "store", Fusion::On, 1 << 16);
    let e: &Entry = &a.manifest.program.entries["grad"];
    let [Pieces { first, count, rows }] = e.pieces[..] else {
        panic!("{:?}", e.pieces)
    };
    assert_eq!(rows, 64);
    let at = Bindings::new(2, 50);
    let told: Vec<_> = e.launches(at).collect();
    let inside = first as usize..(first + count) as usize;
    let pieces: Vec<_> = told.iter().filter(|(i, _)| inside.contains(i)).collect();
    assert_eq!(pieces.len(), 2 * count as usize);
    for (n, (i, piece)) in pieces.iter().enumerate() {
        let (turn, at) = (n / count as usize, n % count as usize);
        assert_eq!(*i, inside.start + at);
        assert_eq!(
            (piece.first, piece.rows),
            [(0, Some(64)), (64, Some(36))][turn]
        );
    }
    assert_eq!(told.len() - pieces.len(), e.instrs.len() - count as usize);
}
