//! Another process: this binary, started again. What it is told to do stands in `shared_memory.rs`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use partgrid::grid::GridId;
use partgrid::location::Location;
use partgrid::share::{Handle, Incarnation};

/// Says to this binary that it is the other process, and what it shall do.
pub(super) const TASK: &str = "PARTGRID_TEST_SHARED_TASK";

pub(super) fn written(handle: &Handle) -> String {
    let position: Vec<String> = handle.position.iter().map(ToString::to_string).collect();
    format!(
        "{} {} {} {} {}",
        handle.grid.bits(),
        position.join(","),
        handle.incarnation.bits(),
        handle.owner.host(),
        handle.owner.process()
    )
}

pub(super) fn read_handle(line: &str) -> Handle {
    let fields: Vec<&str> = line.split(' ').collect();
    let device = Location::here().device();
    Handle {
        grid: GridId::from_bits(fields[0].parse().unwrap()),
        position: fields[1].split(',').map(|at| at.parse().unwrap()).collect(),
        incarnation: Incarnation::from_bits(fields[2].parse().unwrap()),
        owner: Location::new(
            fields[3].parse().unwrap(),
            fields[4].parse().unwrap(),
            device,
        ),
    }
}

pub(super) struct Other {
    pub(super) child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(super) fn start(task: &str, text: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["shared_memory::the_other_process", "--exact", "--nocapture"])
            .env(TASK, format!("{task}\n{text}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it reports next.
    pub(super) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the other process failed");
            if let Some((_, report)) = line.trim_end().split_once("REPORT ") {
                return report.to_owned();
            }
        }
    }

    pub(super) fn say(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
