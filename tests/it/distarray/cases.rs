//! Sections and the rules that they break; see `check.rs` and `notation.rs`.

pub(super) type Cases = &'static [(&'static str, &'static str)];

/// Whole sections as JSON.
pub(super) const SECTION: Cases = &[
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d", "values": [1, 2.5]}, "dim_data": [{}]}"#,
        "",
    ),
    (
        r#"[["__version__", "0.10.0"], ["buffer", null], ["dim_data", []]]"#,
        "T1",
    ),
    ("null", "T1"),
    ("true", "T1"),
    ("3", "T1"),
    (r#""0.10.0""#, "T1"),
    (r#"{"list": []}"#, "T1"),
    ("{}", "T2"),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}], "shape": [2]}"#,
        "T2",
    ),
    (
        r#"{"buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T2",
    ),
    (r#"{"__version__": "0.10.0", "dim_data": [{}]}"#, "T2"),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}}"#,
        "T2",
    ),
    (
        r#"{"__version__": "0.10.7", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "",
    ),
    (
        r#"{"__version__": "0.9.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{"dist_type": "n", "size": 2}]}"#,
        "",
    ),
    (
        r#"{"__version__": "0.10", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": "v0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": "0.10.0a1", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": "0.11.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": "1.0.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": 0.1, "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": null, "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": [0, 10, 0], "buffer": {"shape": [2], "format": "d"}, "dim_data": [{}]}"#,
        "T3",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "B", "type": "bytes"}, "dim_data": [{}]}"#,
        "",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2, 3], "format": ">Zd", "type": "ndarray"}, "dim_data": [{}, {}]}"#,
        "",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"list": [1.0, 2.0]}, "dim_data": [{"dist_type": "b", "size": 2, "proc_grid_size": 1, "proc_grid_rank": 0, "start": 0, "stop": 2}]}"#,
        "T4",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": [1.0, 2.0], "dim_data": [{}]}"#,
        "T4",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": null, "dim_data": []}"#,
        "T4",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": "text", "dim_data": []}"#,
        "T4",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"other": "module"}, "dim_data": []}"#,
        "T4",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": {"list": [{}]}}"#,
        "T5",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": {"dist_type": "c", "size": 2, "proc_grid_size": 1, "proc_grid_rank": 0, "start": 0}}"#,
        "T5",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": {}}"#,
        "T5",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": null}"#,
        "T5",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [[["dist_type", "b"]]]}"#,
        "T6",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2], "format": "d"}, "dim_data": [3]}"#,
        "T6",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2, 2], "format": "d"}, "dim_data": [{}, null]}"#,
        "T6",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [], "format": "d"}, "dim_data": []}"#,
        "",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [1], "format": "d"}, "dim_data": []}"#,
        "T7",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [2, 2], "format": "d"}, "dim_data": [{}]}"#,
        "T7",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [], "format": "d"}, "dim_data": [{}]}"#,
        "T7",
    ),
    (
        r#"{"__version__": "0.10.0", "buffer": {"shape": [9223372036854775808], "format": "d"}, "dim_data": [{}]}"#,
        "T4",
    ),
];

/// One section, alone and strict.
pub(super) const LOCAL: Cases = &[
    // D1
    ("10 10 b 10 0/1 0:10", ""),
    ("9 10 n 10", ""),
    ("10 10 n 10", "D1"),
    ("10 10 b 10 0/1 0:10 dist_type=\"q\"", "D1"),
    ("9 10 b 10 0/1 0:10 dist_type=\"bc\"", "D1"),
    ("10 10 b 10 0/1 0:10 dist_type=3", "D1"),
    ("10 10 b 10 0/1 0:10 -dist_type", "D1"),
    // D2
    ("10 7 {}", ""),
    ("10 2x3 {} ; {}", ""),
    ("10 0 {}", ""),
    ("9 7 {}", "D2"),
    // D3
    ("10 0 b 0 0/1 0:0", ""),
    ("10 0 c 0 0/1 0", ""),
    ("10 0 u 0 0/1 @", ""),
    ("9 0 n 0", ""),
    ("10 10 b 10 0/1 0:10 -size", "D3"),
    ("10 10 c 10 0/1 0 -size", "D3"),
    ("10 2 u 10 0/1 @1,2 -size", "D3"),
    ("9 10 n 10 -size", "D3"),
    ("10 10 b -1 0/1 0:10", "D3"),
    ("10 10 b 10.0 0/1 0:10", "D3"),
    ("10 10 b \"10\" 0/1 0:10", "D3"),
    ("10 1 b true 0/1 0:1", "D3"),
    ("10 10 b null 0/1 0:10", "D3"),
    ("10 10 b 9223372036854775808 0/1 0:10", "D3"),
    // D4
    ("10 5 b 10 1/2 5:10", ""),
    ("10 10 b 10 0/0 0:10", "D4"),
    ("10 10 b 10 3/3 0:10", "D4"),
    ("10 10 b 10 -1/3 0:10", "D4"),
    ("10 10 b 10 0/1 0:10 -proc_grid_size", "D4"),
    ("10 10 c 10 0/1 0 -proc_grid_rank", "D4"),
    ("10 2 u 10 0/\"3\" @1,2", "D4"),
    ("10 10 b 10 false/1 0:10", "D4"),
    ("9 10 b 10 0/1.0 0:10", "D4"),
    // D5
    ("10 0 b 10 1/3 4:4", ""),
    ("10 10 b 10 0/1 -1:10", "D5"),
    ("10 3 b 10 0/1 7:4", "D5"),
    ("10 11 b 10 0/1 0:11", "D5"),
    ("10 10 b 10 0/1 0:10 -stop", "D5"),
    ("10 10 b 10 0/1 0:10 -start", "D5"),
    ("10 10 b 10 0/1 false:10", "D5"),
    ("10 4 b 10 0/1 0:\"4\"", "D5"),
    ("10 4 b 10 0/1 0.0:4", "D5"),
    ("9 11 b 10 0/1 0:11", "D5"),
    // D6
    ("10 4 c 7 0/2 0 block_size=2", ""),
    ("10 3 c 7 1/2 2 block_size=2", ""),
    ("10 5 c 7 0/2 0 block_size=2", "D6"),
    ("10 2 c 7 1/2 2 block_size=2", "D6"),
    ("9 10 b 18 0/2 0:9 padding=[1,1]", ""),
    ("9 10 b 18 1/2 9:18 padding=[1,1]", ""),
    ("10 10 b 18 0/2 0:10 padding=[1,1]", ""),
    ("10 10 b 18 1/2 8:18 padding=[1,1]", ""),
    ("10 10 b 18 0/2 0:9 padding=[1,1]", "D6"),
    ("9 10 b 18 0/2 0:10 padding=[1,1]", "D6"),
    ("10 3 u 30 1/3 @6,13,3", ""),
    ("10 4 u 30 1/3 @6,13,3", "D6"),
    ("9 12 n 10 padding=[1,1] periodic=true", ""),
    ("9 10 n 10 padding=[1,1]", ""),
    ("9 10 n 10 padding=[1,1] periodic=true", "D6"),
    ("9 10 b 8 0/1 0:8 padding=[1,1] periodic=true", ""),
    ("9 8 b 8 0/1 0:8 padding=[1,1] periodic=true", "D6"),
    ("10 3x4 b 5 0/2 0:3 ; b 9 1/2 5:9", ""),
    ("10 3x5 b 5 0/2 0:3 ; b 9 1/2 5:9", "D6"),
    ("9 9 n 10", "D6"),
    // D7
    ("10 10 b 30 0/4 0:10 padding=[4,1]", ""),
    ("10 10 b 30 1/4 5:15 padding=[1,2]", ""),
    ("10 10 b 30 2/4 5:15 padding=[2,3]", ""),
    ("10 10 b 30 3/4 20:30 padding=[3,0]", ""),
    ("10 10 b 10 0/1 0:10 padding=[1]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[0,0,0]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[-1,0]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[\"a\",\"b\"]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=1", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[1.0,0.0]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=[true,0]", "D7"),
    ("10 10 b 10 0/1 0:10 padding=null", "D7"),
    ("10 10 b 10 0/1 0:10 padding={\"list\":[0,0]}", "D7"),
    ("9 10 n 10 padding=[0]", "D7"),
    // D8
    ("10 4 b 4 0/1 0:4 padding=[2,2]", ""),
    ("10 3 b 3 0/1 0:3 padding=[2,2]", "D8"),
    ("10 3 b 9 1/3 3:6 padding=[2,2]", "D8"),
    ("10 0 b 9 1/3 3:3 padding=[1,1]", "D8"),
    ("9 7 b 9 1/3 3:6 padding=[2,2]", ""),
    ("9 3 b 3 0/1 0:3 padding=[2,2]", "D8"),
    ("9 3 n 3 padding=[2,2]", "D8"),
    (
        "10 10 b 10 0/1 0:10 padding=[9223372036854775807,9223372036854775807]",
        "D8",
    ),
    // D9
    ("10 10 b 10 0/1 0:10 padding=[2,2] periodic=true", ""),
    ("10 10 b 10 0/1 0:10 periodic=false", ""),
    ("9 5 c 10 0/2 0 periodic=true", ""),
    ("9 2 u 10 0/2 @4,5 periodic=false", ""),
    ("10 10 b 10 0/1 0:10 periodic=1", "D9"),
    ("10 10 b 10 0/1 0:10 periodic=null", "D9"),
    ("9 10 n 10 periodic=\"True\"", "D9"),
    ("10 5 c 10 0/2 0 periodic=true", "~D9"),
    ("10 2 u 10 0/2 @4,5 periodic=true", "~D9"),
    // D10
    ("10 5 c 10 1/2 1", ""),
    ("10 0 c 3 4/5 4", ""),
    ("10 0 c 3 4/5 3", ""),
    ("10 0 c 9 3/4 15 block_size=5", ""),
    ("10 0 c 9 3/4 9 block_size=5", ""),
    (
        "10 0 c 9 2/4 9223372036854775807 block_size=9223372036854775807",
        "D10",
    ),
    ("10 5 c 10 1/2 2", "D10"),
    ("10 5 c 10 1/2 10", "D10"),
    ("10 5 c 10 0/2 0 block_size=0", "D10"),
    ("10 5 c 10 0/2 0 block_size=\"2\"", "D10"),
    ("10 5 c 10 0/2 0 block_size=true", "D10"),
    ("10 5 c 10 0/2 0 -start", "D10"),
    ("10 5 c 10 0/2 -1", "D10"),
    // D11
    ("10 3 u 30 0/3 @3,1,4", ""),
    ("10 2 u 30 0/3 @-5,700", ""),
    ("10 0 u 30 0/3 @", ""),
    (
        "10 3 u 30 0/3 indices={\"shape\":[3],\"format\":\"B\",\"type\":\"bytes\",\"values\":[3,1,4]}",
        "",
    ),
    (
        "10 3 u 30 0/3 indices={\"shape\":[3],\"format\":\">i\",\"values\":[3,1,4]}",
        "",
    ),
    ("10 3 u 30 0/3 indices={\"list\":[3,1,4]}", "D11"),
    ("9 3 u 30 0/3 indices={\"list\":[3,1,4]}", "D11"),
    ("10 3 u 30 0/3 indices=[3,1,4]", "D11"),
    (
        "10 3 u 30 0/3 indices={\"shape\":[3],\"format\":\"d\",\"values\":[3,1,4]}",
        "D11",
    ),
    (
        "10 4 u 30 0/3 indices={\"shape\":[2,2],\"format\":\"q\",\"values\":[3,1,4,0]}",
        "D11",
    ),
    ("10 3 u 30 0/3 @3,1,3", "D11"),
    ("10 3 u 30 0/3 @3,1,4 -indices", "D11"),
    ("10 3 u 30 0/3 indices=\"abc\"", "D11"),
    (
        "10 3 u 30 0/3 indices={\"shape\":[3],\"format\":\"q\"}",
        "D11",
    ),
    (
        "10 1 u 30 0/3 indices={\"shape\":[1],\"format\":\"Q\",\"values\":[18446744073709551615]}",
        "D11",
    ),
    (
        "10 3 u 30 0/3 indices={\"shape\":[3],\"format\":\"?\",\"values\":[0,1,1]}",
        "D11",
    ),
    // D12
    ("10 2 u 30 0/3 @3,1 one_to_one=true", ""),
    ("10 2 u 30 0/3 @3,1 one_to_one=1", "D12"),
    ("9 2 u 30 0/3 @3,1 one_to_one=null", "D12"),
    // D13
    (
        "10 10 b {\"integral\":10,\"type\":\"numpy.int64\"} 0/1 0:10",
        "D13",
    ),
    (
        "10 10 b 10 0/{\"integral\":1,\"type\":\"numpy.int64\"} 0:10",
        "D13",
    ),
    (
        "10 10 b 10 0/1 start={\"integral\":0,\"type\":\"numpy.int32\"} stop=10",
        "D13",
    ),
    (
        "10 10 b 10 0/1 0:10 padding=[{\"integral\":0,\"type\":\"numpy.int64\"},0]",
        "D13",
    ),
    (
        "10 10 b {\"integral\":-1,\"type\":\"numpy.int64\"} 0/1 0:10",
        "D3 D13",
    ),
    // Other keys mean nothing.
    (
        "10 10 b 10 0/1 0:10 indices=3 block_size=0 one_to_one=1 name=\"x\"",
        "",
    ),
    ("10 10 c 10 0/1 0 padding=[-1] stop=\"a\"", ""),
];

/// One section, which a strict reader refuses, read leniently.
pub(super) const LENIENT: Cases = &[
    ("10 10 b 10 0/1 0:10 padding={\"list\":[0,0]}", "~D7"),
    ("10 10 b 10 0/1 0:10 padding={\"list\":[0,-1]}", "~D7 D7"),
    (
        "10 10 b {\"integral\":10,\"type\":\"numpy.int64\"} 0/1 0:10",
        "~D13",
    ),
    (
        "10 10 b 10 0/1 0:10 padding=[{\"integral\":0,\"type\":\"numpy.int64\"},0]",
        "~D13",
    ),
    ("9 3 u 30 0/3 indices={\"list\":[3,1,4]}", "~D11"),
    ("9 3 u 30 0/3 indices={\"list\":[3,1,3]}", "~D11 D11"),
    ("9 3 u 30 0/3 indices={\"list\":[3,1,true]}", "~D11 D11"),
    ("10 3 u 30 0/3 indices={\"list\":[3,1,4]}", "D11"),
    ("10 1 b true 0/1 0:1", "D3"),
];
