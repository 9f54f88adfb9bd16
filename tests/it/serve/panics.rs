//! An operator that panics: one query ends, and its client alone is told.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use futures::TryStreamExt;
use partgrid::client::{Client, ClientOptions};
use partgrid::error::ErrorKind;
use partgrid::query::{Function, FunctionSignature};
use partgrid::serve::Server;

use super::{options, runtime};

/// Gives what it gets, and panics at 17.
fn fragile() -> Function {
    let signature = FunctionSignature {
        name: "fragile".to_owned(),
        arguments: vec![DataType::Int64],
        returns: DataType::Int64,
        volatile: true,
    };
    let body = |arrays: &[ArrayRef], _: usize| {
        let numbers = arrays[0].as_primitive::<Int64Type>();
        assert!(!numbers.iter().flatten().any(|number| number == 17), "17");
        Ok(Arc::clone(&arrays[0]))
    };
    Function::try_scalar(signature, Arc::new(body)).unwrap()
}

#[test]
fn a_panic_of_an_operator_ends_its_query_and_no_other() {
    runtime().block_on(async {
        let server = Server::start(&options()).await.unwrap();
        server.session().register_function(fragile());
        let options = ClientOptions::default();
        let client = Client::connect(server.uri(), &options).await.unwrap();
        let other = Client::connect(server.uri(), &options).await.unwrap();
        // Another client is in the middle of its rows.
        let many = "SELECT value FROM generate_series(1, 3000000)";
        let mut rows = other.sql(many).await.unwrap().stream();
        let mut found = rows.try_next().await.unwrap().unwrap().num_rows();
        for text in [
            "SELECT fragile(n) FROM numbers",
            "SELECT name FROM numbers WHERE fragile(n) >= 0",
            "SELECT fragile(n), count(*) FROM numbers GROUP BY 1",
            "SELECT a.n FROM numbers a JOIN numbers b ON a.n = fragile(b.n)",
            "SELECT fragile(n) FROM numbers ORDER BY 1",
        ] {
            let told = client.sql(text).await.unwrap().collect().await.unwrap_err();
            assert_eq!(told.kind(), ErrorKind::Internal, "{text}: {told}");
            // The same client goes on, also with the function.
            let good = client.sql("SELECT fragile(n) FROM numbers WHERE n < 10");
            let good = good.await.unwrap().collect().await.unwrap();
            assert_eq!(good.iter().map(RecordBatch::num_rows).sum::<usize>(), 10);
        }
        while let Some(batch) = rows.try_next().await.unwrap() {
            found += batch.num_rows();
        }
        assert_eq!(found, 3_000_000);
    });
}
