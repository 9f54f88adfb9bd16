//! The rules between parameters, what is inherited, labels, origins; every refusal with its text.

use partgrid::error::{Error, ErrorKind};
use partgrid::storage::{Backend, Dims, Parameters, Place, Plan};

use super::{backend, dims};

fn refusal(shape: &[usize], parameters: &Parameters) -> String {
    let error = Plan::try_new(shape, 8, parameters).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    error.to_string()
}

#[test]
fn a_backend_excludes_what_it_decides() {
    let given = Parameters {
        backend: Some(backend("gt:cpu_ifirst")),
        aligned_index: Some(vec![0]),
        dims: Some(dims("K")),
        ..Parameters::default()
    };
    assert!(given.check_exclusive().is_ok());
    let cases = [
        (
            "alignment_size",
            Parameters {
                alignment_size: Some(8),
                ..given.clone()
            },
        ),
        (
            "device",
            Parameters {
                place: Some(Place::Gpu),
                ..given.clone()
            },
        ),
        (
            "layout",
            Parameters {
                layout: Some(vec![0]),
                ..given.clone()
            },
        ),
    ];
    for (name, parameters) in cases {
        let expected = format!(
            "backend decides {name}: one of the two must be left out, got backend=\"gt:cpu_ifirst\" and {name}\n\
             hint: leave out {name}, or leave out backend and give alignment_size, device and layout"
        );
        assert_eq!(refusal(&[4], &parameters), expected);
        let like = parameters.or_like(Parameters::default());
        assert_eq!(like.unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_is_not_given_is_inherited_and_a_backend_replaces_what_it_decides() {
    let other = Parameters {
        aligned_index: Some(vec![1, 2]),
        alignment_size: Some(64),
        backend: None,
        place: Some(Place::Host),
        dims: Some(dims("KI")),
        layout: Some(vec![1, 0]),
    };
    assert_eq!(Parameters::default().or_like(other.clone()).unwrap(), other);
    let changed = Parameters {
        layout: Some(vec![0, 1]),
        dims: Some(dims("IJ")),
        ..Parameters::default()
    };
    let expected = Parameters {
        layout: Some(vec![0, 1]),
        dims: Some(dims("IJ")),
        ..other.clone()
    };
    assert_eq!(changed.or_like(other.clone()).unwrap(), expected);
    let preset = Parameters {
        backend: Some(backend("numpy")),
        ..Parameters::default()
    };
    let expected = Parameters {
        aligned_index: other.aligned_index.clone(),
        backend: preset.backend,
        dims: other.dims.clone(),
        ..Parameters::default()
    };
    assert_eq!(preset.or_like(other).unwrap(), expected);
}

#[test]
fn a_plan_inherits_all_of_another_one() {
    let parameters = Parameters {
        backend: Some(backend("gt:gpu")),
        aligned_index: Some(vec![1, 2, 3]),
        dims: Some(dims("KJI")),
        ..Parameters::default()
    };
    let plan = Plan::try_new(&[4, 5, 6], 4, &parameters).unwrap();
    let again = Plan::try_new(&[4, 5, 6], 4, &plan.parameters()).unwrap();
    assert_eq!(again, plan);
}

#[test]
fn parameters_that_fit_nothing_are_refused_with_the_remedy() {
    let none = Parameters::default;
    let cases = [
        (
            Parameters {
                layout: Some(vec![0, 0]),
                ..none()
            },
            "layout must have each number below 2 once, got [0, 0] without 1\n\
             hint: 0 is for the dimension with the largest stride, the highest number for that with the smallest",
        ),
        (
            Parameters {
                layout: Some(vec![0]),
                ..none()
            },
            "layout must have one entry for each of the 2 dimensions, got 1",
        ),
        (
            Parameters {
                dims: Some(dims("IJK")),
                ..none()
            },
            "dims must have one entry for each of the 2 dimensions, got 3",
        ),
        (
            Parameters {
                aligned_index: Some(vec![1]),
                ..none()
            },
            "aligned_index must have one entry for each of the 2 dimensions, got 1",
        ),
        (
            Parameters {
                aligned_index: Some(vec![4, 0]),
                ..none()
            },
            "aligned_index must be an element of the storage, got [4, 0] for the shape [4, 3]",
        ),
        (
            Parameters {
                alignment_size: Some(0),
                ..none()
            },
            "alignment_size must be at least 1 byte, got 0",
        ),
        (
            Parameters {
                alignment_size: Some(12),
                ..none()
            },
            "alignment_size must be a multiple or a divisor of the 8 bytes of an element, got 12\nhint: alignment_size=16",
        ),
    ];
    for (parameters, expected) in cases {
        assert_eq!(refusal(&[4, 3], &parameters), expected);
    }
}

#[test]
fn wrong_labels_and_backends_are_refused_by_name() {
    let labels = |labels: &[&str]| Dims::try_from_labels(labels).unwrap_err();
    let text = |error: Error| error.message().to_owned();
    for wrong in ["i", "L", "", "-1", "+1", "01", "1.0", "99999999999"] {
        assert_eq!(
            text(labels(&["I", wrong])),
            format!(
                "dims must be labels out of \"I\", \"J\", \"K\" and decimal numbers, got {wrong:?}"
            )
        );
    }
    assert_eq!(
        text(labels(&["I", "0", "I"])),
        "dims must not repeat a label, got \"I\" twice"
    );
    let unknown = Backend::try_from_name("cuda").unwrap_err();
    assert_eq!(
        unknown.message(),
        "backend must be one of GT4Py, got \"cuda\""
    );
    assert!(
        unknown
            .hint()
            .unwrap()
            .contains("gt:cpu_ifirst, gt:gpu, dace:cpu")
    );
}

#[test]
fn the_origin_is_the_aligned_element_in_the_order_of_stencils() {
    let origin = |labels: &str, index: &[usize]| {
        let parameters = Parameters {
            aligned_index: Some(index.to_vec()),
            dims: (!labels.is_empty()).then(|| dims(labels)),
            ..Parameters::default()
        };
        let shape = vec![10; index.len()];
        Plan::try_new(&shape, 8, &parameters).unwrap().origin()
    };
    assert_eq!(origin("KJI", &[1, 2, 3]), [3, 2, 1]);
    assert_eq!(origin("K0IJ", &[1, 9, 3, 4]), [3, 4, 1, 0]);
    assert_eq!(origin("1K0", &[5, 1, 6]), [1, 0, 0]);
    // Without labels the order is taken as it is; behind three dimensions come those of data.
    assert_eq!(origin("", &[1, 2, 3, 4]), [1, 2, 3, 0]);
    assert_eq!(origin("", &[]), [0; 0]);
}
