//! Alignment, order of strides and overlap by address arithmetic, over thousands of random plans.

use std::collections::HashSet;
use std::sync::Arc;

use partgrid::error::ErrorKind;
use partgrid::storage::{Backend, Dims, Parameters, Place, Plan, layout_of};
use proptest::prelude::*;

use super::{backend, dims};

/// What a plan is made of; the aligned index as fractions of the extents.
#[derive(Debug, Clone)]
struct Case {
    shape: Vec<usize>,
    item_bytes: usize,
    alignment_size: usize,
    layout: Vec<usize>,
    aligned_index: Vec<usize>,
    base: usize,
}

impl Case {
    fn parameters(&self) -> Parameters {
        Parameters {
            aligned_index: Some(self.aligned_index.clone()),
            alignment_size: Some(self.alignment_size),
            layout: Some(self.layout.clone()),
            ..Parameters::default()
        }
    }

    fn plan(&self) -> Plan {
        Plan::try_new(&self.shape, self.item_bytes, &self.parameters()).unwrap()
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let items = prop::sample::select(vec![1_usize, 2, 3, 4, 8, 12, 16, 24]);
    let shape = prop::collection::vec(1..12_usize, 0..6);
    (shape, items).prop_flat_map(|(shape, item_bytes)| {
        let layout = Just((0..shape.len()).collect::<Vec<_>>()).prop_shuffle();
        let index: Vec<_> = shape.iter().map(|extent| 0..*extent).collect();
        let divisors: Vec<usize> = (1..=item_bytes)
            .filter(|size| item_bytes.is_multiple_of(*size))
            .collect();
        let alignment = prop_oneof![
            prop::sample::select(divisors),
            (1..40_usize).prop_map(move |items| items * item_bytes),
            prop::sample::select(vec![64_usize, 128, 256, 4096])
                .prop_map(move |items| items * item_bytes),
        ];
        let base = prop_oneof![
            0..1_usize << 20,
            (usize::MAX >> 1)..(usize::MAX >> 1) + 9999
        ];
        (Just(shape), layout, index, alignment, base).prop_map(
            move |(shape, layout, aligned_index, alignment_size, base)| Case {
                shape,
                item_bytes,
                alignment_size,
                layout,
                aligned_index,
                base,
            },
        )
    })
}

/// The distance of an element from the first one.
fn distance(plan: &Plan, index: &[usize]) -> usize {
    index
        .iter()
        .zip(plan.strides())
        .map(|(at, stride)| at * stride)
        .sum()
}

/// Every index of a shape.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![vec![]], |prefixes, extent| {
        let longer = |prefix: &Vec<usize>| {
            let prefix = prefix.clone();
            (0..*extent).map(move |at| [prefix.as_slice(), &[at]].concat())
        };
        prefixes.iter().flat_map(longer).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn the_aligned_element_and_all_beside_it_are_aligned(case in cases()) {
        let plan = case.plan();
        let first = case.base + plan.offset(case.base);
        let address = |index: &[usize]| first + distance(&plan, index);
        prop_assert!(address(&case.aligned_index).is_multiple_of(case.alignment_size));
        // What C wants of every element.
        let natural = (1 << case.item_bytes.trailing_zeros()).min(16);
        prop_assert!(address(&case.aligned_index).is_multiple_of(natural));
        if !case.alignment_size.is_multiple_of(case.item_bytes) {
            return Ok(());
        }
        let contiguous = case.layout.iter().position(|rank| rank + 1 == case.layout.len());
        for index in indices(&case.shape) {
            let beside = contiguous.is_none_or(|at| index[at] == case.aligned_index[at]);
            if beside {
                prop_assert!(address(&index).is_multiple_of(case.alignment_size), "{index:?}");
            }
        }
    }

    #[test]
    fn a_plan_is_shared_with_the_one_before_that_asks_for_the_same_alone(case in cases(), change in 0..4) {
        let plan = |case: &Case| Plan::try_shared(&case.shape, case.item_bytes, &case.parameters()).unwrap();
        let (first, second) = (plan(&case), plan(&case));
        prop_assert!(Arc::ptr_eq(&first, &second));
        let mut other = case.clone();
        match change {
            0 => other.shape.iter_mut().for_each(|extent| *extent += 1),
            1 => other.alignment_size *= 2 * other.item_bytes,
            2 => other.layout.reverse(),
            _ => other.aligned_index.iter_mut().for_each(|at| *at = 0),
        }
        for case in [&other, &case] {
            prop_assert_eq!(&*plan(case), &case.plan());
        }
        let default = Parameters::default();
        let plain = Plan::try_shared(&case.shape, case.item_bytes, &default).unwrap();
        prop_assert_eq!(&*plain, &Plan::try_new(&case.shape, case.item_bytes, &default).unwrap());
    }

    #[test]
    fn no_two_elements_overlap_and_all_lie_within_the_memory(case in cases()) {
        let plan = case.plan();
        let offset = plan.offset(case.base);
        let mut bytes = HashSet::new();
        for index in indices(&case.shape) {
            let start = offset + distance(&plan, &index);
            prop_assert!(start + case.item_bytes <= plan.num_bytes());
            for byte in start..start + case.item_bytes {
                prop_assert!(bytes.insert(byte), "{index:?} overlaps");
            }
        }
        prop_assert!(offset + plan.span_bytes() <= plan.num_bytes());
    }

    #[test]
    fn strides_are_ordered_by_the_layout_and_the_smallest_is_one_element(case in cases()) {
        let plan = case.plan();
        let mut order: Vec<usize> = (0..case.shape.len()).collect();
        order.sort_by_key(|dimension| case.layout[*dimension]);
        for pair in order.windows(2) {
            let (outer, inner) = (pair[0], pair[1]);
            prop_assert!(plan.strides()[outer] >= plan.strides()[inner] * case.shape[inner]);
        }
        if let Some(fastest) = order.last() {
            prop_assert_eq!(plan.strides()[*fastest], case.item_bytes);
        }
        // Only the rows are filled up, to less than one alignment more.
        let rows = case.shape.iter().product::<usize>() / order.last().map_or(1, |fastest| case.shape[*fastest]);
        let most = plan.num_elements() * case.item_bytes + rows * case.alignment_size;
        prop_assert!(plan.span_bytes() <= most);
    }

    #[test]
    fn the_layout_is_read_back_from_the_strides(case in cases()) {
        let plan = case.plan();
        let strides: Vec<isize> = plan.strides().iter().map(|stride| *stride as isize).collect();
        let distinct: HashSet<&isize> = strides.iter().collect();
        if distinct.len() == strides.len() {
            prop_assert_eq!(layout_of(&strides), case.layout);
        }
    }

    #[test]
    fn a_preset_goes_by_the_meaning_of_dimensions_wherever_they_are(
        backend in prop::sample::select(Backend::all().collect::<Vec<_>>()),
        labels in Just("IJK01".chars().collect::<Vec<_>>()).prop_shuffle(),
        count in 0..6_usize,
        item_bytes in prop::sample::select(vec![1, 2, 4, 8, 16]),
        base in 0..1_usize << 40,
    ) {
        let labels: String = labels.into_iter().take(count).collect();
        let canonical: String = "IJK01".chars().filter(|label| labels.contains(*label)).collect();
        let parameters = |labels: &str| Parameters {
            backend: Some(backend),
            dims: Some(dims(labels)),
            ..Parameters::default()
        };
        let shape = vec![5; labels.len()];
        let plan = Plan::try_new(&shape, item_bytes, &parameters(&labels)).unwrap();
        let reference = Plan::try_new(&shape, item_bytes, &parameters(&canonical)).unwrap();
        for (label, (stride, rank)) in labels.chars().zip(plan.strides().iter().zip(plan.layout())) {
            let place = canonical.find(label).unwrap();
            prop_assert_eq!(reference.strides()[place], *stride);
            prop_assert_eq!(reference.layout()[place], *rank);
        }
        let alignment = if backend.name() == "gt:gpu" { 32 * item_bytes } else { 1 };
        prop_assert_eq!(plan.alignment_size(), alignment);
        prop_assert!((base + plan.offset(base)).is_multiple_of(alignment));
        let on_gpu = backend.name().contains("gpu");
        prop_assert_eq!(plan.place(), if on_gpu { Place::Gpu } else { Place::Host });
    }
}

#[test]
fn presets_are_those_of_gt4py() {
    // The table of GT4Py 1.1.12 and 1.2.3; the labels in index order.
    let columns = ["IJK", "IJ", "JK", "IK", "K", "IJK0", "IJK01"];
    let ijk = ["012", "01", "01", "01", "0", "1230", "23401"];
    let kji = ["210", "10", "10", "10", "0", "3210", "43201"];
    let kij = ["120", "01", "10", "10", "0", "2310", "34201"];
    let table = [
        ("numpy", ijk),
        ("debug", ijk),
        ("gt:cpu_kfirst", ijk),
        ("gt:cpu_ifirst", kji),
        ("gt:gpu", kji),
        ("dace:cpu", kij),
        ("dace:cpu_kfirst", ijk),
        ("dace:cpu_KJI", kji),
        ("dace:gpu", kji),
        ("dace:gpu_IJK", ijk),
    ];
    assert_eq!(Backend::all().count(), table.len());
    for (name, layouts) in table {
        for (labels, layout) in columns.iter().zip(layouts) {
            let got = backend(name).layout(&dims(labels));
            let got: String = got.iter().map(ToString::to_string).collect();
            assert_eq!(got, layout, "{name} {labels}");
        }
    }
}

#[test]
fn k_has_the_smallest_stride_whatever_its_index_is() {
    for labels in ["IJK", "IKJ", "JIK", "JKI", "KIJ", "KJI"] {
        let parameters = Parameters {
            backend: Some(backend("gt:cpu_kfirst")),
            dims: Some(dims(labels)),
            ..Parameters::default()
        };
        let plan = Plan::try_new(&[5, 6, 7], 8, &parameters).unwrap();
        assert_eq!(plan.strides()[labels.find('K').unwrap()], 8, "{labels}");
    }
}

#[test]
fn a_preset_of_a_gpu_fills_its_rows_up_to_whole_alignments() {
    let parameters = Parameters {
        backend: Some(backend("gt:gpu")),
        aligned_index: Some(vec![3, 3, 0]),
        ..Parameters::default()
    };
    let plan = Plan::try_new(&[40, 10, 5], 8, &parameters).unwrap();
    // 32 elements of 8 bytes: 40 become 64.
    assert_eq!(plan.strides(), [8, 512, 5120]);
    assert_eq!((plan.alignment_size(), plan.span_bytes()), (256, 25600));
    assert_eq!(plan.num_bytes(), 25600 + 255);
    // CUDA gives multiples of 256 and of 512; the aligned element is 3 behind a multiple of 64.
    for base in [0x7f00_0000_0000, 0x7f00_0000_0100, 0x7f00_0000_0001] {
        let aligned = base + plan.offset(base) + 3 * 8 + 3 * 512;
        assert_eq!(aligned % 256, 0);
    }
    assert_eq!(plan.offset(0x7f00_0000_0000), 256 - 24);
}

#[test]
fn a_plan_without_dimensions_or_without_elements_is_one_too() {
    let point = Plan::try_new(&[], 8, &Parameters::default()).unwrap();
    assert_eq!((point.num_elements(), point.span_bytes()), (1, 8));
    let parameters = Parameters {
        alignment_size: Some(64),
        ..Parameters::default()
    };
    let none = Plan::try_new(&[3, 0, 2], 8, &parameters).unwrap();
    assert_eq!((none.num_elements(), none.span_bytes()), (0, 0));
    // As if there were one of each, the rows filled up.
    assert_eq!(none.strides(), [64, 64, 8]);
}

#[test]
fn shapes_beyond_all_addresses_are_refused() {
    let half = 1 << (usize::BITS / 2);
    for shape in [
        vec![usize::MAX],
        vec![half, half],
        vec![half / 2, half / 4, 1],
        vec![0, half, half],
        vec![1 << 60],
    ] {
        let error = Plan::try_new(&shape, 8, &Parameters::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourcesExhausted, "{shape:?}");
    }
    let parameters = Parameters {
        alignment_size: Some(1 << 60),
        ..Parameters::default()
    };
    assert!(Plan::try_new(&[4], 8, &parameters).is_ok());
    assert!(Plan::try_new(&[(1 << 60) - 1], 8, &parameters).is_err());
    let parameters = Parameters {
        alignment_size: Some(3 << 61),
        ..Parameters::default()
    };
    let error = Plan::try_new(&[4], 1, &parameters).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourcesExhausted);
    let deep = Plan::try_new(&[1; 65], 8, &Parameters::default()).unwrap_err();
    assert_eq!(
        deep.to_string(),
        "a storage has at most 64 dimensions, got 65"
    );
}

#[test]
fn assumed_labels_are_those_of_stencils() {
    let labels = |count| Dims::assumed(count).labels().collect::<String>();
    assert_eq!([0, 1, 3, 5].map(labels), ["", "I", "IJK", "IJK01"]);
}
