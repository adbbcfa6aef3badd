// The engine core's process by itself: what it says and how it ends.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

const std::string kModels = TANDEM_GOLDEN_DIR "/models/";

// A child with its output in a pipe. Killed and reaped when it goes away.
class Child {
 public:
  struct Limit {
    __rlimit_resource resource;
    rlimit values;
  };
  explicit Child(std::vector<std::string> args, const std::optional<Limit>& limit = {}) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    args.insert(args.begin(), TANDEM_BIN_DIR "/tandem-engine-core");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      if (limit && setrlimit(limit->resource, &limit->values) != 0) _exit(126);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    output_fd_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(output_fd_);
  }

  // Reads until `text` was written; false when the output ended before.
  bool WaitFor(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  int WaitForExit() {
    while (ReadMore()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  void Signal(int signal) { kill(pid_, signal); }
  const std::string& output() const { return output_; }
  std::string CommandName() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/comm");
    std::string name;
    std::getline(in, name);
    return name;
  }

 private:
  bool ReadMore() {
    char buffer[4096];
    const ssize_t size = read(output_fd_, buffer, sizeof buffer);
    if (size > 0) output_.append(buffer, static_cast<size_t>(size));
    return size > 0;
  }

  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string output_;
};

TEST_CASE("engine process: starts without a frontend, reports itself, ends in order on SIGTERM") {
  const tandem::TempFolder folder;
  Child engine({kModels + "qwen3", "--handshake-address", "ipc://" + folder.path() + "/handshake",
                "--num-gpu-blocks-override", "65"});
  const bool ready = engine.WaitFor("Engine core ready in");
  CAPTURE(engine.output());
  REQUIRE(ready);
  CHECK_THAT(engine.output(), Contains("Qwen3ForCausalLM") && Contains("bfloat16"));
  CHECK_THAT(engine.output(), Contains("CPU KV cache size: 2,048 tokens"));
  CHECK_THAT(engine.output(), Contains("Maximum concurrency for 1,024 tokens per request: 2.00x"));
  CHECK(engine.CommandName() == "tandem-engine");
  size_t last = 0;
  for (const char* phase : {"config", "device", "weights mapped", "weights packed", "step buffers",
                            "KV cache", "engine and wire"}) {
    CAPTURE(phase);
    const size_t at = engine.output().find("[startup] " + std::string(phase) + " in ");
    REQUIRE(at != std::string::npos);
    CHECK(at > last);
    CHECK_THAT(engine.output().substr(at, engine.output().find('\n', at) - at), Contains(" ms"));
    last = at;
  }
  engine.Signal(SIGTERM);
  CHECK(engine.WaitForExit() == 0);
  CHECK_THAT(engine.output(), Contains("[shutdown]"));
}

TEST_CASE("engine process: dummy weights need only a config") {
  const tandem::TempFolder folder;
  fs::copy(kModels + "qwen3/config.json", folder.path());
  Child engine({folder.path(), "--load-format", "dummy", "--handshake-address",
                "ipc://" + folder.path() + "/handshake"});
  CHECK(engine.WaitFor("Engine core ready in"));
  engine.Signal(SIGINT);
  CHECK(engine.WaitForExit() == 0);
}

TEST_CASE("engine process: a bad command line ends with status 2 and a hint") {
  Child unknown({kModels + "qwen3", "--max-num-seq", "3"});
  CHECK(unknown.WaitForExit() == 2);
  CHECK_THAT(unknown.output(), Contains("--max-num-seqs"));
  Child too_long({kModels + "qwen3", "--max-model-len", "4000"});
  CHECK(too_long.WaitForExit() == 2);
  CHECK_THAT(too_long.output(), Contains("4000") && Contains("1024"));
}

TEST_CASE("engine process: a bad model ends with status 3 and its name") {
  const tandem::TempFolder folder;
  Child missing({folder.path() + "/nowhere"});
  CHECK(missing.WaitForExit() == 3);
  CHECK_THAT(missing.output(), Contains("nowhere/config.json"));

  for (const auto& file : fs::directory_iterator(kModels + "qwen3")) fs::copy(file, folder.path());
  const std::string weights = folder.path() + "/model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) / 2);
  Child truncated({folder.path()});
  CHECK(truncated.WaitForExit() == 3);
  CHECK_THAT(truncated.output(), Contains(weights) && Contains("truncated"));

  std::ofstream(folder.path() + "/config.json") << "{\"architectures\": [\"Lla";
  Child broken({folder.path()});
  CHECK(broken.WaitForExit() == 3);
  CHECK_THAT(broken.output(), Contains("config.json") && Contains("JSON"));
}

TEST_CASE("engine process: more than there is memory for is refused with what it is needed for") {
  const tandem::TempFolder folder;
  Child engine({kModels + "qwen3", "--num-gpu-blocks-override", "2000000000", "--block-size",
                "4096", "--handshake-address", "ipc://" + folder.path() + "/handshake"});
  CHECK(engine.WaitForExit() == 3);
  CHECK_THAT(engine.output(),
             Contains("of it free; needed are") && Contains("for weights") &&
                 Contains("--max-num-batched-tokens 2048") && Contains("--max-num-seqs 128") &&
                 Contains("--max-model-len 1024") && Contains("--kv-cache-dtype int8") &&
                 Contains("--quantization int8") && Contains("--gpu-memory-utilization"));
}

TEST_CASE("engine process: an unknown architecture is refused by name, whatever it would need") {
  const tandem::TempFolder folder;
  std::ifstream from(kModels + "qwen3/config.json");
  std::string config{std::istreambuf_iterator<char>(from), {}};
  const std::string known = "Qwen3ForCausalLM";
  config.replace(config.find(known), known.size(), "PerceptronForCausalLM");
  folder.Write("/config.json", config);
  Child engine({folder.path(), "--load-format", "dummy", "--num-gpu-blocks-override", "2000000000",
                "--block-size", "4096", "--handshake-address",
                "ipc://" + folder.path() + "/handshake"});
  CHECK(engine.WaitForExit() == 3);
  CHECK_THAT(engine.output(), Contains("PerceptronForCausalLM") && Contains("Qwen3ForCausalLM"));
}

TEST_CASE("engine process: a small stack is enlarged where that is allowed, else refused") {
  const tandem::TempFolder folder;
  const std::vector<std::string> args = {kModels + "qwen3", "--handshake-address",
                                         "ipc://" + folder.path() + "/handshake"};
  constexpr rlim_t kSmall = rlim_t{128} << 10, kUsual = rlim_t{8} << 20;
  Child engine(args, Child::Limit{RLIMIT_STACK, {kSmall, kUsual}});
  CHECK(engine.WaitFor("Engine core ready in"));
  engine.Signal(SIGTERM);
  CHECK(engine.WaitForExit() == 0);
  Child refused(args, Child::Limit{RLIMIT_STACK, {kSmall, kSmall}});
  CHECK(refused.WaitForExit() == 1);
  CHECK_THAT(refused.output(), Contains("the stack may have 128 KiB (ulimit -s)"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadows need terabytes
Child::Limit AddressSpace(rlim_t bytes) { return {RLIMIT_AS, {bytes, bytes}}; }

TEST_CASE("engine process: memory that the host does not give ends the start with status 3") {
  const tandem::TempFolder folder;
  // 64 Ki requests of 4 Mi tokens are a terabyte of token ids; everything else is small.
  folder.Write("/config.json", R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 100,
      "n_embd": 2, "n_layer": 1, "n_head": 1, "n_positions": 4194304})");
  Child engine({folder.path(), "--load-format", "dummy", "--max-num-seqs", "65536",
                "--max-num-batched-tokens", "65536", "--handshake-address",
                "ipc://" + folder.path() + "/handshake"},
               AddressSpace(rlim_t{1} << 36));
  CHECK(engine.WaitForExit() == 3);
  CHECK_THAT(engine.output(), Contains("no more memory; lower --max-num-seqs"));
}

TEST_CASE("engine process: a limit on the address space bounds the KV cache, or is an error") {
  const tandem::TempFolder folder;
  const Child::Limit limit = AddressSpace(rlim_t{1} << 30);
  const std::string address = "ipc://" + folder.path() + "/handshake";
  const std::vector<std::string> much = {kModels + "qwen3", "--max-num-seqs", "2048",
                                         "--handshake-address", address};
  Child engine(much, limit);
  const bool ready = engine.WaitFor("Engine core ready in");
  CAPTURE(engine.output());
  REQUIRE(ready);
  engine.Signal(SIGTERM);
  CHECK(engine.WaitForExit() == 0);

  std::vector<std::string> too_much = much;
  too_much.insert(too_much.end(), {"--kv-cache-memory-bytes", "2G"});
  Child refused(too_much, limit);
  CHECK(refused.WaitForExit() == 3);
  CHECK_THAT(refused.output(), Contains("lower --kv-cache-memory-bytes"));
}
#endif

TEST_CASE("engine process: a KV cache too small for one request ends with status 3") {
  const tandem::TempFolder folder;
  Child engine({kModels + "qwen3", "--kv-cache-memory-bytes", "200K", "--handshake-address",
                "ipc://" + folder.path() + "/handshake"});
  CHECK(engine.WaitForExit() == 3);
  CHECK_THAT(engine.output(), Contains("one request may need 1024") &&
                                  Contains("KV cache of one request: lower --max-model-len 1024"));
}

}  // namespace
