#pragma once

// The thread that has grammars compiled: it starts tandem-grammar, starts it again when it dies,
// hands it specs and waits for what becomes of each, a few at a time. The engine loop never waits
// for any of this.
// Thread: its own; Compile and the destructor on the engine loop. `done` is called on the thread
// and must only post. Owns: the program and the sockets of grammars that compile.
// Failure: a grammar's is its GrammarCompiled::status: INVALID_ARGUMENT for a spec that is wrong or
// takes too much, INTERNAL when the program does not start.

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "engine_core/grammar/grammar_link.h"
#include "engine_core/grammar/grammar_process.h"

namespace tandem {

struct GrammarThreadOptions {
  std::string program;  // its path
  std::string model_folder;
  int32_t vocab_size = 0;
  int masks_file = -1;  // borrowed
  int max_compiling = 2;
  double compile_timeout_s = 60;  // by the wall clock, for a host that is overloaded
};

struct GrammarJob {
  int64_t grammar_id = 0;
  std::string packed_spec;
};

class GrammarThread {
 public:
  GrammarThread(const GrammarThreadOptions& options, const Clock* clock,
                std::function<void(GrammarCompiled)> done);
  ~GrammarThread();
  void Compile(GrammarJob job) { jobs_.Push(std::move(job)); }

 private:
  struct Compiling {
    GrammarJob job;
    UniqueFd socket;
    double deadline = 0;
    int num_attempts = 0;
  };

  void Run();
  void TakeJobs();
  void StartProgram();
  void StartJobs();
  Status Send(Compiling* compiling);
  void Poll();
  void HearProgram();
  void HearJob(Compiling* compiling);
  void EndOverdue();
  void LoseProgram();
  void End(Compiling* compiling, Status status);
  int TimeoutMs() const;

  GrammarThreadOptions options_;
  const Clock* clock_;
  std::function<void(GrammarCompiled)> done_;
  UniqueFd wake_;  // an eventfd
  Mailbox<GrammarJob> jobs_;
  std::optional<GrammarProcess> program_;
  bool is_ready_ = false;
  double start_after_ = 0;  // a program that dies at once is not started at once
  Status broken_;           // why the program can never serve
  std::deque<Compiling> waiting_;
  std::vector<Compiling> compiling_;
  std::thread thread_;
};

}  // namespace tandem
