//! Attention of new tokens to those before them: a tile is a block of 16 queries of one head.
//!
//! Takes keys and values of all tokens so far, the new ones included; emits the forward kernel's steps for the new rows
//! alone, with the same blocks of keys, so that a token gets the same bits however many tokens a run has. Of the key
//! blocks, those before the first query's position are seen by all queries; in the one or two after them a query sees
//! the keys up to its own position. Of several sequences each has room of its own for keys, and a query at a position of
//! its own; where queries see all of them, no block is cut off by a position.

use super::forward::Block;
use super::*;

const QUERIES: i64 = Attend::QUERIES as i64;

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(crate) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    check(kernel)?;
    if !kernel.causal && kernel.room.is_none() {
        return Err("attention to all tokens cannot go on where it stopped".into());
    }
    with_tiles(e, kernel, |e| attend(e, kernel))
}

fn attend(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let [q, k, v, o] = std::array::from_fn(|n| e.operand(n as u64));
    let places = kernel.own_positions().map(|_| e.operand(4));
    let behind = 4 + u64::from(places.is_some());
    let sinks = kernel.scores.sinks.then(|| e.operand(behind));
    let behind = behind + u64::from(kernel.scores.sinks);
    // Never both.
    let numbers = kernel.partial.then(|| e.operand(behind));
    let inputs = Elem::of(kernel.inputs);
    let [q, k, v] = [q, k, v].map(|t| (t, inputs));
    let (seq, past) = (e.dim(0), e.dim(1));
    let block = Block::new(e, kernel, QUERIES);
    let table = table(e, kernel, behind, block.near);
    let groups = e.div_ceil(seq, QUERIES);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, t| {
        let (number, group) = (e.div(t, groups), e.rem(t, groups));
        let rows = match kernel.room {
            // one sequence: rows of all four operands are numbered from its beginning
            None => seq,
            Some(room) => e.int(room as i64),
        };
        let [head, of_keys] = Head::pair(e, kernel, [seq, rows], number);
        let head = head.with_table(table);
        let first = e.mul_int(group, QUERIES);
        let heads = e.int(kernel.heads as i64);
        let sequence = e.div(number, heads);
        let past = match places {
            None => past,
            Some(places) => {
                let p = e.at(places, sequence, Elem::I32);
                let place = e.load(p, Type::scalar(Elem::I32));
                e.convert(place, Elem::I64)
            }
        };
        // Of heads of queries and of keys, after so many keys.
        let attend = |e: &mut Emitter, [head, of_keys]: [Head; 2], past: Val| {
            let left = e.sub(head.seq, first);
            let most = e.int(QUERIES);
            let queries = e.min(left, most);
            head.transpose(e, q, first, queries, block.qt);
            let sink = sinks.map(|sinks| head.sink(e, sinks));
            block.start(e, sink);
            let [of_results, of_values] = [head, of_keys].map(|head| head.of_values(e));
            let step = |e: &mut Emitter, key: Val, keys: Val, sight: Sight| {
                of_keys.left(e, k, key, keys, block.k);
                of_values.right(e, v, key, keys, block.v);
                block.step(e, queries, keys, sight);
            };
            if !kernel.causal {
                let (zero, blocks) = (e.int(0), e.div_ceil(of_keys.seq, BLOCK));
                e.for_each(zero, blocks, 1, |e, j| {
                    let key = e.mul_int(j, BLOCK);
                    let keys = rows_in_block(e, of_keys.seq, key);
                    let sight = Sight {
                        until: Until::All,
                        from: None,
                        bias: None,
                    };
                    step(e, key, keys, sight);
                });
                block.finish(e);
                return block.write(e, &of_results, o, first, queries);
            }
            let position = e.add(past, first);
            let (next, size) = (e.add_int(position, 1), e.int(BLOCK));
            let whole = e.div(next, size);
            let begin = first_block(e, kernel, position);
            e.for_each(begin, whole, 1, |e, j| {
                let (key, all) = (e.mul_int(j, BLOCK), e.int(BLOCK));
                let sight = Sight::of(e, &head, Until::All, position, key);
                step(e, key, all, sight);
            });
            let seen = e.add(position, queries);
            let blocks = e.div_ceil(seen, BLOCK);
            let whole = e.max(begin, whole);
            e.for_each(whole, blocks, 1, |e, j| {
                let key = e.mul_int(j, BLOCK);
                let keys = rows_in_block(e, seen, key);
                let more = e.sub(position, key);
                let sight = Sight::of(e, &head, Until::Ahead(more), position, key);
                step(e, key, keys, sight);
            });
            block.finish(e);
            block.write(e, &of_results, o, first, queries);
        };
        let Some(numbers) = numbers else {
            return attend(e, [head, of_keys], past);
        };
        let (zero, before) = match kernel.room {
            None => (e.int(0), e.int(0)),
            Some(room) => (e.int(0), e.mul_int(sequence, room as i64)),
        };
        let numbers = Numbers::of(e, kernel, numbers, before, block.rest);
        if !kernel.causal {
            let count = numbers.list(e, (zero, rows), zero);
            let of_some = of_keys.of_part(count, numbers.from(e, zero, None));
            return attend(e, [head, of_some], past);
        }
        let earlier = numbers.list(e, (zero, past), zero);
        let end = e.add(past, seq);
        let all = numbers.list(e, (past, end), earlier);
        let own = numbers.from(e, earlier, Some(past));
        let head_of_own = head.of_part(e.sub(all, earlier), own);
        let of_all = of_keys.of_part(all, numbers.from(e, zero, None));
        let some = e.cmp(Cmp::Lt, first, head_of_own.seq);
        e.when(some, |e| attend(e, [head_of_own, of_all], earlier));
        let (from, to) = of_tile(e, group, QUERIES, seq);
        let rows = (e.add(past, from), e.add(past, to));
        let of_results = head.of_values(e);
        numbers.each_other(e, rows, |e, row| {
            let row = e.sub(row, past);
            of_results.clear(e, o, row);
        });
    });
    Ok(())
}
