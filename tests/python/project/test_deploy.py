"""The files in `deploy/`: their settings are such that there are, and what they say in several places is the same in all."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trustme

from conftest import DATA
from services import COMMAND, Service, free_ports, until, write_tokens

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

DEPLOY = DATA.parent / "deploy"
DOCS = DATA.parent / "docs" / "deploy.md"

# What needs neither a token nor anything else, as `test_server_http.py` shows.
OPEN = {"/healthz", "/readyz"}
STOP_WITHIN = 30

# What a member says once it knows both others.
ALL_THERE = b"members: 3\naway: 0\n"


def secrets(folder: Path) -> Path:
    """A folder with the file that is read to know whether settings are good."""
    for below in ("", "tokens", "tls", "config"):
        (folder / below).mkdir(exist_ok=True)
        (folder / below / "cluster.token").write_text("pgt_members")
    return folder


def configured(*arguments: object, **environment: str) -> dict[str, str]:
    """What `partgrid config` says that holds, by setting."""
    known = {"PATH": os.environ["PATH"], "COLUMNS": "1000", **environment}
    command = [str(COMMAND), "config", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=known)
    assert done.returncode == 0, done.stderr
    lines = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()[1:]]
    return {line[0]: line[1] for line in lines}


def here(text: str, folder: Path) -> str:
    return text.replace("/etc/partgrid", str(folder))


def port(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def test_members_of_compose_know_each_other(tmp_path: Path) -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    secrets(tmp_path)
    for name, service in services.items():
        said = {key: here(str(value), tmp_path) for key, value in service["environment"].items()}
        holds = configured(**said)
        for key, value in said.items():
            setting = key.removeprefix("PARTGRID_").lower().replace("__", ".")
            # Sizes are shown in bytes.
            assert holds[setting] == value or setting.startswith("limits."), (key, holds[setting])
        assert holds["server.advertised"] == f"grpc+tls://{name}:{port(holds['server.address'])}"
        listed = holds["cluster.join"].split(",")
        assert [each.split(":")[0] for each in listed] == list(services)
        assert {port(each) for each in listed} == {port(holds["server.address"])}
        [health] = re.findall(r"https://127.0.0.1:(\d+)(/\w+)", service["healthcheck"]["test"][-1])
        assert int(health[0]) == port(holds["server.http"])
        assert health[1] in OPEN
        assert int(service["stop_grace_period"].removesuffix("s")) > STOP_WITHIN
        mounted = [volume.split(":")[1] for volume in service["volumes"] if ":" in volume]
        assert mounted == ["/etc/partgrid"]
        assert holds["server.spill_to"] in service["volumes"]


def test_members_of_compose_meet_as_they_are_written_down(tmp_path: Path) -> None:
    """All on this machine, each at a port of its own, with an authority that a test makes."""
    text = (DEPLOY / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    ports = dict(zip(services, free_ports(3), strict=True))
    tokens = write_tokens(tmp_path / "tokens.toml", members={"scope": "admin"})
    (tmp_path / "cluster.token").write_text(tokens["members"])
    vouched(tmp_path, "localhost", "127.0.0.1")

    def started(name: str) -> Service:
        places = {"0.0.0.0:8815": f"127.0.0.1:{ports[name]}", "0.0.0.0:8816": "127.0.0.1:0"}
        places |= {f"{each}:8815": f"localhost:{port}" for each, port in ports.items()}
        places |= {"/etc/partgrid": str(tmp_path), "/spill": str(tmp_path / name)}
        said = {key: str(value) for key, value in services[name]["environment"].items()}
        for place, here in places.items():
            said = {key: value.replace(place, here) for key, value in said.items()}
        (tmp_path / name).mkdir()
        return Service(ports=False, **said)

    members: list[Service] = []
    try:
        members += map(started, services)
        trusted = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        for member in members:
            page = f"{member.ready().http_uri}/readyz"
            until(lambda page=page: urlopen(page, context=trusted).read().endswith(ALL_THERE))
        [*_, program] = services["m1"]["healthcheck"]["test"]
        program = program.replace("https://127.0.0.1:8816", members[0].http_uri)
        subprocess.run([sys.executable, "-c", program], check=True)
        [words] = re.findall(r"^#   partgrid (--server .* ps)$", text, re.MULTILINE)
        words = words.replace("localhost:8815", f"localhost:{ports['m1']}")
        command = [COMMAND, *words.split()]
        asked = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert asked.stdout.endswith("\n3 members\n")
    finally:
        for member in members:
            member.kill()


def test_keys_and_tokens_are_for_those_alone_who_are_to_have_them(tmp_path: Path) -> None:
    """As the page says it, by a user with the usual mask."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    page = DOCS.read_text()
    _, section = page.split("### Certificate and tokens\n")
    making = re.findall(r"```sh\n(.*?)```", section.split("\n### ")[0], re.DOTALL)
    assert len(making) == 2
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    known = {**os.environ, "PATH": path}

    def done(script: str) -> str:
        command = ["bash", "-ec", f"umask 022\n{script}"]
        ran = subprocess.run(
            command, cwd=tmp_path, env=known, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "".join(map(done, making)).startswith("pgt_")
    for name in ("ca.key", "tls.key", "cluster.token", "tokens.toml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name
    settings = {"PARTGRID_AUTH__TOKENS": "tokens.toml", "PARTGRID_CLUSTER__TOKEN": "cluster.token"}
    places = {key: str(tmp_path / name) for key, name in settings.items()}
    assert configured("--join", "alone", **places)["auth.tokens"] == places["PARTGRID_AUTH__TOKENS"]
    copying = re.findall(r"^sudo (install .*deploy/secrets/?)$", page, re.MULTILINE)
    assert len(copying) == 2
    if os.geteuid() == 0:
        done("\n".join(copying))
        copies = [each.stat() for each in (tmp_path / "deploy" / "secrets").iterdir()]
        assert [(each.st_uid, stat.S_IMODE(each.st_mode)) for each in copies] == [
            (10001, 0o400)
        ] * 5


def vouched(folder: Path, *names: str) -> None:
    """Puts a certificate for these names into a folder, and who vouches for it."""
    authority = trustme.CA()
    issued = authority.issue_cert(*names)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "tls.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))


def manifests() -> dict[tuple[str, str], Any]:
    every = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in every}


def test_settings_of_kubernetes_are_such_that_there_are(tmp_path: Path) -> None:
    known = manifests()
    config, pods = known["ConfigMap", "partgrid"]["data"], known["StatefulSet", "partgrid"]["spec"]
    pod = pods["template"]["spec"]
    [container] = pod["containers"]
    file = secrets(tmp_path) / "config" / "server.toml"
    file.write_text(here(config["server.toml"], tmp_path))
    said = {each["name"]: each.get("value") for each in container["env"]}
    arguments = [here(word, tmp_path) for word in container["args"]]
    assert (container["command"], arguments[0]) == (["partgrid"], "serve")
    advertised = said["PARTGRID_SERVER__ADVERTISED"].replace("$(POD_NAME)", "partgrid-1")
    holds = configured(*arguments[1:], PARTGRID_SERVER__ADVERTISED=advertised)
    assert holds["server.advertised"] == advertised
    # Everything that settings name is mounted.
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    named = re.findall(r'"(?:file:)?(/[\w/.-]+)"', config["server.toml"])
    assert len(named) >= 6
    for path in named:
        assert any(path == mount or path.startswith(f"{mount}/") for mount in mounts), path
    assert {each["name"] for each in pod["volumes"]} == {
        each["name"] for each in container["volumeMounts"]
    }
    ends = pod["terminationGracePeriodSeconds"]
    waits = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert ends > waits + float(holds["server.stop_within"].removesuffix("s"))
    compile(config["member.py"], "member.py", "exec")
    within = re.findall(r"stop\(within=(\d+)\)", config["member.py"])
    assert [float(each) for each in within] == [float(holds["server.stop_within"])]


def test_names_and_ports_of_kubernetes_agree() -> None:
    known = manifests()
    config, pods = known["ConfigMap", "partgrid"]["data"], known["StatefulSet", "partgrid"]["spec"]
    [container] = pods["template"]["spec"]["containers"]
    service = pods["serviceName"]
    assert known["Service", service]["spec"]["clusterIP"] == "None"
    assert known["Service", service]["spec"]["publishNotReadyAddresses"] is True
    members = config["members"].split()
    expected = [f"partgrid-{n}.{service}.default.svc:8815" for n in range(pods["replicas"])]
    assert members == expected
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"flight": 8815, "http": 8816}
    assert {port(member) for member in members} == {ports["flight"]}
    for name in ("address", "http"):
        listens = re.findall(rf'^{name} = "(\S+)"$', config["server.toml"], flags=re.MULTILINE)
        assert [port(each) for each in listens] == [ports["flight" if name == "address" else name]]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[name]["httpGet"]
        assert asked["path"] in OPEN
        assert (asked["port"], asked["scheme"]) == ("http", "HTTPS")
    labels = pods["template"]["metadata"]["labels"]
    for kind, name in (("Service", service), ("Service", "partgrid")):
        assert known[kind, name]["spec"]["selector"].items() <= labels.items()
    assert known["PodDisruptionBudget", "partgrid"]["spec"]["selector"]["matchLabels"] == labels
    # The names that certificates must have are told where one makes them.
    assert f"DNS:*.{service}.default.svc" in DOCS.read_text()


def test_the_service_of_systemd_has_flags_and_settings_that_there_are(tmp_path: Path) -> None:
    unit = (DEPLOY / "partgrid.service").read_text()
    [start] = re.findall(r"^ExecStart=/usr/local/bin/partgrid serve(.*)$", unit, re.MULTILINE)
    # A flag would replace what the file of settings says.
    assert start == ""
    [variables] = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
    variables = variables.replace("%S", str(tmp_path)).replace("%C", str(tmp_path))
    own = dict(pair.split("=", 1) for pair in variables.split())
    holds = configured(**own)
    assert holds["server.catalog"] == holds["server.spill_to"] == f"{tmp_path}/partgrid"
    [stops] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert float(stops) > float(holds["server.stop_within"]) == STOP_WITHIN
    for folder in ("StateDirectory", "CacheDirectory"):
        assert f"\n{folder}=partgrid\n" in unit
    # The variables in the page: those of one server, and those of a member.
    blocks = re.findall(r"```text\n((?:PARTGRID_\w+=\S*\n)+)```", DOCS.read_text())
    assert len(blocks) == 2
    secrets(tmp_path)
    said = own
    for block in blocks:
        said |= dict(line.split("=", 1) for line in here(block, tmp_path).splitlines())
        assert configured(**said)["server.address"] == said["PARTGRID_SERVER__ADDRESS"]


def test_the_batch_job_is_a_script_and_its_check_a_program() -> None:
    path = DEPLOY / "mpi.sbatch"
    subprocess.run(["bash", "-n", path], check=True)
    text = path.read_text()
    [program] = re.findall(r"set -- -c '\n(.*?)\n'\n", text, re.DOTALL)
    compile(program, "check", "exec")
    assert set(re.findall(r"PARTGRID_\w+", text)) == {
        "PARTGRID_HOST",
        "PARTGRID_MAX_THREADS",
        "PARTGRID_VENV",
    }


def tool(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a program says that people deploy with; skips the test where it is not there."""
    program = str(command[0])
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on this machine: the file is read, not tried with it")
    words = [str(word) for word in command]
    known = os.environ | environment
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=known)


def test_docker_takes_the_file_of_compose() -> None:
    if tool("docker", "compose", "version").returncode != 0:
        pytest.skip("docker has no compose on this machine: the file is read, not tried with it")
    done = tool("docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "--format", "json")
    # Warnings as well: of variables that nobody has set, of keys that are obsolete.
    assert (done.returncode, done.stderr) == (0, "")
    understood = yaml.safe_load(done.stdout)["services"]
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(understood) == set(services)
    for name, service in services.items():
        said = {key: str(value) for key, value in service["environment"].items()}
        assert understood[name]["environment"] == said


def test_systemd_takes_the_service(tmp_path: Path) -> None:
    unit = tmp_path / "partgrid.service"
    text = (DEPLOY / "partgrid.service").read_text()
    # The command must be where the service says that it is.
    unit.write_text(text.replace("/usr/local/bin/partgrid", str(shutil.which("true"))))
    done = tool("systemd-analyze", "verify", "--man=no", unit)
    # Keys that it does not know are no error to it.
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("RestartSec=", "RestartSecs="))
    wrong = tool("systemd-analyze", "verify", "--man=no", unit)
    assert "RestartSecs" in wrong.stdout + wrong.stderr


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """The paths of what is not there, or is something else."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        inner = ((f"{path}.{key}", value, found.get(key)) for key, value in wanted.items())
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) <= len(found):
        inner = ((f"{path}[{at}]", value, found[at]) for at, value in enumerate(wanted))
    else:
        return [] if wanted == found else [path]
    return [each for path, one, other in inner for each in missing(one, other, path)]


def test_kubectl_knows_every_field_of_the_pods(tmp_path: Path) -> None:
    """A dry run asks a cluster for the kinds that there are. Without one kubectl reads the set of pods as a type, and leaves away what that has not."""
    pods = manifests()["StatefulSet", "partgrid"]

    def understood(file: dict[str, Any]) -> Any:
        path = tmp_path / "pods.yaml"
        path.write_text(yaml.safe_dump(file))
        words = ["set", "env", "--local", "-f", path, "CHECKED=yes", "-o", "json"]
        done = tool("kubectl", *words, KUBECONFIG=os.devnull)
        assert done.returncode == 0, done.stderr
        return yaml.safe_load(done.stdout)

    assert missing(pods, understood(pods)) == []
    wrong = pods | {"spec": pods["spec"] | {"serviceNames": "partgrid-members"}}
    assert missing(wrong, understood(wrong)) == [".spec.serviceNames"]


def test_images_have_what_the_others_use() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    [container] = manifests()["StatefulSet", "partgrid"]["spec"]["template"]["spec"]["containers"]
    context = manifests()["StatefulSet", "partgrid"]["spec"]["template"]["spec"]["securityContext"]
    users = set(re.findall(r"^USER (\d+)$", text, re.MULTILINE))
    assert users == {str(context["runAsUser"])}
    assert users == {compose["services"]["m1"]["user"].split(":")[0]}
    exposed = {each for line in re.findall(r"^EXPOSE (.*)$", text, re.M) for each in line.split()}
    assert exposed == {str(each["containerPort"]) for each in container["ports"]}
    # The check of health of compose is a program of Python: the last image is the one with it.
    assert text.rindex(" AS package") > text.rindex(" AS command")
    version = re.findall(r'^version = "(\S+)"', (DATA.parent / "Cargo.toml").read_text(), re.M)[0]
    for image in (container["image"], compose["services"]["m1"]["image"]):
        assert image.endswith(f"partgrid:{version}")
