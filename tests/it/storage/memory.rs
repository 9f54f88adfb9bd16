//! Memory: what is in it, that it can be written everywhere, who frees it, what is refused; and devices that are only made up.

#![expect(
    unsafe_code,
    reason = "reads and writes elements through their address"
)]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use partgrid::error::{ErrorKind, Result};
use partgrid::grid::ElementType;
use partgrid::location::Device;
use partgrid::storage::{
    Fill, Foreign, Host, Item, Memory, MemorySource, Parameters, Plan, Storage,
};

use super::{backend, floats};

/// The elements in memory order from the first one to the last, with those of the padding.
fn span(storage: &Storage) -> Vec<f64> {
    let num_items = storage.plan().span_bytes() / 8;
    (0..num_items)
        .map(|item| {
            // SAFETY: the plan has these bytes within the memory, which the storage keeps.
            unsafe { storage.as_ptr().cast::<f64>().wrapping_add(item).read() }
        })
        .collect()
}

#[test]
fn storages_hold_what_was_asked_for_everywhere() {
    let parameters = Parameters {
        alignment_size: Some(128),
        layout: Some(vec![1, 0]),
        ..Parameters::default()
    };
    // Below and above the size from which zeros are pages of the system.
    for shape in [[3, 5], [700, 300]] {
        let zeros = floats(&shape, &parameters, Fill::Zeros);
        assert!(span(&zeros).iter().all(|value| value.to_bits() == 0));
        let value = 1.5_f64.to_ne_bytes();
        let filled = floats(&shape, &parameters, Fill::Item(&value));
        assert!(span(&filled).iter().all(|value| *value == 1.5));
        // The sign of a zero is kept.
        let negative = floats(&shape, &parameters, Fill::Item(&(-0.0_f64).to_ne_bytes()));
        assert!(
            span(&negative)
                .iter()
                .all(|value| value.to_bits() == 1 << 63)
        );
    }
}

#[test]
fn values_of_every_width_are_written() {
    for item_bytes in [1, 2, 3, 4, 8, 12, 16, 24] {
        let value: Vec<u8> = (1..=item_bytes as u8).collect();
        let item = Item::try_foreign(Foreign {
            item_bytes,
            type_string: format!("|V{item_bytes}"),
            format: None,
        });
        let plan = Plan::try_new(&[7, 5], item_bytes, &Parameters::default()).unwrap();
        let storage = Storage::try_new(plan, item.unwrap(), Fill::Item(&value), &Host).unwrap();
        // SAFETY: 35 elements without gaps, in memory that the storage keeps.
        let bytes = unsafe { std::slice::from_raw_parts(storage.as_ptr(), 35 * item_bytes) };
        assert!(bytes.chunks_exact(item_bytes).all(|chunk| chunk == value));
    }
}

#[test]
fn hundreds_of_storages_never_share_a_byte() {
    let parameters = |number: usize| Parameters {
        alignment_size: Some(8 << (number % 7)),
        aligned_index: Some(vec![number % 3, number % 5]),
        ..Parameters::default()
    };
    let storages: Vec<Arc<Storage>> = (0..400)
        .map(|number| {
            floats(
                &[3 + number % 40, 5 + number % 90],
                &parameters(number),
                Fill::Undefined,
            )
        })
        .collect();
    let elements = |storage: &Storage| storage.plan().span_bytes() / 8;
    for (number, storage) in storages.iter().enumerate() {
        for item in 0..elements(storage) {
            // SAFETY: within the memory of the storage, which nobody else knows.
            unsafe {
                storage
                    .as_ptr()
                    .cast::<f64>()
                    .wrapping_add(item)
                    .write((number * 100_000 + item) as f64)
            };
        }
    }
    for (number, storage) in storages.iter().enumerate() {
        for (item, value) in span(storage).into_iter().enumerate() {
            assert_eq!(value, (number * 100_000 + item) as f64);
        }
    }
}

#[test]
fn more_memory_than_the_machine_has_is_refused() {
    for fill in [Fill::Undefined, Fill::Zeros] {
        let plan = Plan::try_new(&[1 << 45], 8, &Parameters::default()).unwrap();
        let item = Item::Number(ElementType::Float64);
        let error = Storage::try_new(plan, item, fill, &Host).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
        assert!(
            error
                .message()
                .starts_with("a storage needs 281474976710663 bytes, more than the "),
            "{error}"
        );
    }
}

#[test]
fn a_copy_has_the_values_and_the_layout_and_memory_of_its_own() {
    for (shape, layout) in [
        (vec![4, 3, 5], vec![2, 0, 1]),
        (vec![6], vec![0]),
        (vec![], vec![]),
        (vec![2, 0], vec![1, 0]),
    ] {
        let parameters = Parameters {
            alignment_size: Some(64),
            layout: Some(layout),
            ..Parameters::default()
        };
        let storage = floats(&shape, &parameters, Fill::Zeros);
        for item in 0..storage.plan().span_bytes() / 8 {
            // SAFETY: within the memory of the storage, which nobody else knows.
            unsafe {
                storage
                    .as_ptr()
                    .cast::<f64>()
                    .wrapping_add(item)
                    .write(item as f64)
            };
        }
        let copy = storage.try_copy().unwrap();
        assert_eq!(copy.plan(), storage.plan());
        assert_ne!(copy.as_ptr(), storage.as_ptr());
        for index in every_index(&shape) {
            let at: usize = index
                .iter()
                .zip(storage.plan().strides())
                .map(|(at, stride)| at * stride)
                .sum();
            // SAFETY: an element of the storage.
            let one = unsafe { storage.as_ptr().wrapping_add(at).cast::<f64>().read() };
            // SAFETY: the same element of the copy.
            let other = unsafe { copy.as_ptr().wrapping_add(at).cast::<f64>().read() };
            assert_eq!(one.to_bits(), other.to_bits());
        }
    }
}

fn every_index(shape: &[usize]) -> Vec<Vec<usize>> {
    let count = shape.iter().product();
    (0..count)
        .map(|mut number: usize| {
            let mut index = vec![0; shape.len()];
            for (at, extent) in index.iter_mut().zip(shape).rev() {
                *at = number % extent;
                number /= extent;
            }
            index
        })
        .collect()
}

/// A device whose addresses nobody can read: what is done to its memory is written down.
#[derive(Debug, Default)]
struct MadeUp(Arc<Mutex<Vec<String>>>);

#[derive(Debug)]
struct MadeUpMemory {
    num_bytes: usize,
    log: Arc<Mutex<Vec<String>>>,
}

const MADE_UP_BASE: usize = 0x7f00_0000_0200;

impl MemorySource for MadeUp {
    fn device(&self) -> Device {
        "kDLCUDA:3".parse().unwrap()
    }

    fn allocate(&self, num_bytes: usize, zeroed: bool) -> Result<Box<dyn Memory>> {
        self.0
            .lock()
            .unwrap()
            .push(format!("allocate {num_bytes} {zeroed}"));
        Ok(Box::new(MadeUpMemory {
            num_bytes,
            log: Arc::clone(&self.0),
        }))
    }
}

impl Memory for MadeUpMemory {
    fn as_ptr(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(MADE_UP_BASE)
    }

    fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    fn device(&self) -> Device {
        "kDLCUDA:3".parse().unwrap()
    }

    fn fill(&mut self, range: Range<usize>, pattern: &[u8]) -> Result<()> {
        self.log
            .lock()
            .unwrap()
            .push(format!("fill {range:?} with {} bytes", pattern.len()));
        Ok(())
    }
}

impl Drop for MadeUpMemory {
    fn drop(&mut self) {
        self.log.lock().unwrap().push("free".to_owned());
    }
}

#[test]
fn memory_of_a_device_is_laid_out_and_never_touched() {
    let source = MadeUp::default();
    let parameters = Parameters {
        backend: Some(backend("gt:gpu")),
        aligned_index: Some(vec![3, 0, 0]),
        ..Parameters::default()
    };
    let plan = Plan::try_new(&[40, 2, 2], 8, &parameters).unwrap();
    let one = 1_f64.to_ne_bytes();
    let item = Item::Number(ElementType::Float64);
    let storage = Storage::try_new(plan.clone(), item.clone(), Fill::Item(&one), &source).unwrap();
    let address = storage.as_ptr().addr();
    assert_eq!((address + 3 * 8) % 256, 0);
    assert_eq!(storage.device().to_string(), "kDLCUDA:3");
    assert_eq!(storage.try_copy().unwrap_err().kind(), ErrorKind::NotLocal);
    assert_eq!(
        storage.try_into_grid(None).unwrap_err().kind(),
        ErrorKind::NotLocal
    );
    drop(storage);
    let offset = address - MADE_UP_BASE;
    let expected = [
        format!("allocate {} false", plan.num_bytes()),
        format!("fill {offset}..{} with 8 bytes", offset + plan.span_bytes()),
        "free".to_owned(),
    ];
    assert_eq!(*source.0.lock().unwrap(), expected);
    // Never memory of the host in disguise, nor the other way round.
    let error = Storage::try_new(plan, item.clone(), Fill::Zeros, &Host).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let plan = Plan::try_new(&[4], 8, &Parameters::default()).unwrap();
    assert!(Storage::try_new(plan, item, Fill::Zeros, &source).is_err());
}

#[test]
fn a_plan_and_a_value_of_another_width_are_refused() {
    let plan = || Plan::try_new(&[4], 8, &Parameters::default()).unwrap();
    let error = Storage::try_new(plan(), Item::Bool, Fill::Zeros, &Host).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the plan must be of the 1 bytes of bool, it is of 8"
    );
    let item = Item::Number(ElementType::Int64);
    let error = Storage::try_new(plan(), item, Fill::Item(&[0; 4]), &Host).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value must have the 8 bytes of int64, got 4"
    );
}

#[test]
fn items_have_their_names_in_every_interface() {
    let names = [
        "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "|b1", "<c8",
        "<c16",
    ];
    let formats = [
        "b", "h", "i", "l", "B", "H", "I", "L", "e", "f", "d", "?", "Zf", "Zd",
    ];
    let codes = [
        (0, 8),
        (0, 16),
        (0, 32),
        (0, 64),
        (1, 8),
        (1, 16),
        (1, 32),
        (1, 64),
        (2, 16),
        (2, 32),
        (2, 64),
        (6, 8),
        (5, 64),
        (5, 128),
    ];
    for ((name, format), code) in names.iter().zip(formats).zip(codes) {
        let item = Item::of_type_string(name).unwrap();
        assert_eq!(item.type_string(), *name);
        assert_eq!(item.format().unwrap().to_str().unwrap(), format);
        assert_eq!(item.dlpack_code(), Some(code));
        assert_eq!(item.item_bytes() * 8, usize::from(code.1));
        let mut one = item.one().unwrap();
        assert_eq!(one.len(), item.item_bytes());
        one.retain(|byte| *byte != 0);
        assert!(!one.is_empty());
    }
    for other in [
        ">f8", "<f16", "<M8[ns]", "|V8", "<U4", "|O", "", "<", "<f", "é",
    ] {
        assert_eq!(Item::of_type_string(other), None, "{other}");
    }
    let empty = Foreign {
        item_bytes: 0,
        type_string: "|S0".to_owned(),
        format: None,
    };
    let error = Item::try_foreign(empty).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dtype must have elements of at least one byte, got '|S0'"
    );
}
