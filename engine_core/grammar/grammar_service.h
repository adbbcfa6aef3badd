#pragma once

// Structured outputs of the engine: has the grammars of requests compiled, keeps them by content,
// and gives each step the masks of its requests. The masks are made by other processes while the
// model runs; the executor waits for them before it samples.
// Thread: engine loop; `post` is called on the grammar thread. Owns: the thread, the sockets of all
// grammars, the memory of the masks.
// Failure of a grammar ends its requests with an error, or, when its process was killed, lets them
// wait for a new one, which is given the tokens so far (GrammarFailure).

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/clock.h"
#include "common/status.h"
#include "engine_core/grammar/grammar_spec.h"
#include "engine_core/grammar/grammar_thread.h"
#include "engine_core/grammar/held_grammar.h"
#include "engine_core/grammar/mask_memory.h"
#include "engine_core/grammar/request_grammars.h"
#include "engine_core/scheduler/grammar_result.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

struct GrammarServiceOptions {
  std::string program;       // of tandem-grammar
  std::string model_folder;  // whose tokenizer it reads
  int32_t vocab_size = 0;
  int32_t max_num_seqs = 0;
  GrammarDefaults defaults;
};

class GrammarService final : public RequestGrammars {
 public:
  static StatusOr<std::unique_ptr<GrammarService>> Create(
      const GrammarServiceOptions& options, const Clock* clock,
      std::function<void(GrammarCompiled)> post);

  const GrammarDefaults& defaults() const override { return options_.defaults; }
  bool Await(const Request& request) override;
  std::vector<GrammarResult> Take(const GrammarCompiled& compiled) override;
  void BeginMasks(Step* step) override;
  void FinishMasks() override;
  std::vector<GrammarFailure> TakeFailures() override { return std::exchange(failures_, {}); }
  void DropEnded(const Scheduler& scheduler) override;

  size_t num_grammars() const { return grammars_.size(); }
  size_t num_users() const { return users_.size(); }

 private:
  // A request with a grammar, by its Request::order.
  struct User {
    RequestId id;
    HeldGrammar* grammar = nullptr;  // nullptr: it has failed, its request is about to know
    int32_t num_taken = 0;           // outputs that its matcher has taken in
    bool has_matcher = false;
    int num_restarts = 0;
  };

  GrammarService(const GrammarServiceOptions& options, MaskMemory masks);
  HeldGrammar* FindOrMake(std::string packed_spec);
  void CompileQueued();
  bool MakeRoom();
  void DropIdle(size_t num_kept);
  void AddMask(int32_t request_idx, const Request& request, SchedulerOutput* output);
  void Lose(HeldGrammar* grammar, const Status& status);
  void Fail(int64_t order, User* user, const Status& status);
  void CloseMatcher(int64_t order, User* user);
  void Erase(HeldGrammar* grammar);

  GrammarServiceOptions options_;
  MaskMemory masks_;
  absl::flat_hash_map<int64_t, std::unique_ptr<HeldGrammar>> grammars_;  // by id
  absl::flat_hash_map<std::string, int64_t> ids_;                        // by packed spec
  std::deque<int64_t> queued_;  // to compile when there is room
  size_t num_live_ = 0;         // compiling or compiled
  absl::flat_hash_map<int64_t, User> users_;
  std::vector<HeldGrammar*> in_step_;
  std::vector<std::pair<int64_t, int32_t>> rows_in_step_;  // the order of each row's request
  std::vector<GrammarFailure> failures_;
  int64_t next_id_ = 1;
  int64_t num_uses_ = 0;
  std::unique_ptr<GrammarThread> thread_;  // last: it must end first
};

}  // namespace tandem
