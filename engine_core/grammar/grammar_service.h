#pragma once

// Structured outputs of the engine: has the grammars of requests compiled, keeps them by content,
// and gives each step the masks of its requests. The masks are made by other processes while the
// model runs; the executor waits for them before it samples. Where a mask allows one token, the
// tokens that must follow it come along with the mask, so that the next step computes all of them.
// A request with drafts gets a mask for each, and no run. A process that does not answer within
// max_wait_s is late: its requests wait as at first, others run on, and the masks count when they
// come. After reply_timeout_s another process is made in its place.
// Thread: engine loop; `post` is called on the thread of the compilers. Owns: the thread, the
// sockets of all grammars, the memory of the masks. Failure of a grammar ends its requests with an
// error, or, when its process was killed or stands still, lets them wait for a new one, which is
// given the tokens so far (GrammarFailure).

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/clock.h"
#include "common/forking/forked_jobs.h"
#include "common/status.h"
#include "engine_core/grammar/grammar_link.h"
#include "engine_core/grammar/grammar_spec.h"
#include "engine_core/grammar/held_grammar.h"
#include "engine_core/grammar/mask_memory.h"
#include "engine_core/grammar/mask_places.h"
#include "engine_core/grammar/request_grammars.h"
#include "engine_core/scheduler/grammar_result.h"
#include "engine_core/scheduler/request.h"
#include "engine_core/scheduler/scheduler.h"
#include "engine_core/scheduler/step.h"

namespace tandem {

struct GrammarServiceOptions {
  std::string program;                // of tandem-grammar
  std::string model_folder;           // whose end tokens it reads
  std::string tokenizer_folder = {};  // empty: the model's
  int32_t vocab_size = 0;
  int32_t max_num_seqs = 0;
  int32_t max_model_len = 0;
  GrammarDefaults defaults;
  bool finds_runs = true;   // of forced tokens
  int32_t max_drafts = 0;   // of a request in a step
  double max_wait_s = 0.1;  // of a step; a mask takes microseconds, some of large grammars more
  // Its process ends by itself when a step takes too much CPU time; this is for a host that gives
  // it none.
  double reply_timeout_s = 10;
};

class GrammarService final : public RequestGrammars {
 public:
  static StatusOr<std::unique_ptr<GrammarService>> Create(
      const GrammarServiceOptions& options, const Clock* clock,
      std::function<void(GrammarCompiled)> post);

  const GrammarDefaults& defaults() const override { return options_.defaults; }
  bool Await(const Request& request) override;
  std::vector<GrammarResult> Take(const GrammarCompiled& compiled) override;
  void Foresee(const Scheduler& scheduler) override;
  void BeginMasks(Step* step) override;
  void FinishMasks() override;
  std::vector<GrammarFailure> TakeFailures() override { return std::exchange(failures_, {}); }
  void DropEnded(const Scheduler& scheduler) override;

  size_t num_grammars() const { return grammars_.size(); }
  size_t num_users() const { return users_.size(); }
  int64_t num_foreseen() const { return num_foreseen_; }  // masks that were of use
  size_t num_late() const { return num_late_; }  // times that a step did not wait for a process
  size_t num_abandoned() const { return abandoned_.size(); }

 private:
  // A request with a grammar, by its Request::order.
  struct User {
    RequestId id;
    HeldGrammar* grammar = nullptr;  // nullptr: it has failed, its request is about to know
    int32_t num_taken = 0;           // outputs that its matcher has taken in
    bool has_matcher = false;
    int32_t foreseen_row = -1;  // where the mask of its next token is being written; -1: nowhere
    int32_t kept_row = -1;      // where it was written too late for its step; -1: nowhere
    bool is_waiting = false;    // for its grammar, for a mask that is late, or
    bool awaits_place = false;  // until one is free
    int num_restarts = 0;
  };

  // A process that was given up while it may still write.
  struct Abandoned {
    std::shared_ptr<UniqueFd> socket;
    std::vector<int32_t> rows;
  };

  // A mask of the step.
  struct RowInStep {
    int64_t request_order = 0;
    int32_t request_idx = 0;
    int32_t row = 0;         // of the memory: its first
    int32_t num_drafts = 0;  // as many rows more
    int32_t max_run = 0;     // tokens
    bool is_made = false;    // its masks are there, or are being made since they were foreseen
  };

  GrammarService(const GrammarServiceOptions& options, MaskMemory masks);
  HeldGrammar* FindOrMake(std::string packed_spec);
  void EndWaits(const HeldGrammar* grammar, std::vector<GrammarResult>* results);
  void EndWaitsForPlaces(std::vector<GrammarResult>* results);
  void CompileQueued();
  bool MakeRoom();
  void DropIdle(size_t num_kept);
  User* FindUser(int64_t order);  // nullptr: it has no grammar that can be asked
  std::span<int32_t> MaskAt(int32_t row) const {
    return masks_.rows().mask(static_cast<size_t>(row));
  }
  void AddMatcherStep(const Request& request, int32_t row, std::span<const TokenId> drafts,
                      User* user);
  void PlaceMasks(const Step& step, RowInStep* row);
  bool TakeKept(const Request& request, const ScheduledRequest& scheduled, User* user);
  bool DropKeptAfter(int64_t first);
  bool IsOneLate() const;
  void SendPackets();
  void ReceiveReplies();
  void ForgetForeseen();
  int32_t MaxRun(const Request& request, size_t num_drafts) const;
  void TakeRun(const RowInStep& row, SchedulerOutput* output) const;
  void AllowAll(const RowInStep& row, SchedulerOutput* output) const;
  void Delay(HeldGrammar* grammar);
  void Wait(int64_t order, User* user);
  void Watch(int64_t grammar_id, const std::shared_ptr<UniqueFd>& socket, double timeout_s);
  void TakeLate(HeldGrammar* grammar, std::vector<GrammarResult>* results);
  void KeepMasks(HeldGrammar* grammar);
  void ReplaceLate(HeldGrammar* grammar, const Status& status, std::vector<GrammarResult>* results);
  void LookAtAbandoned(int64_t grammar_id);
  void Lose(HeldGrammar* grammar, const Status& status);
  void Fail(int64_t order, User* user, const Status& status);
  void DropKept(User* user);
  void CloseMatcher(int64_t order, User* user);
  void Erase(HeldGrammar* grammar);

  GrammarServiceOptions options_;
  SystemClock clock_;
  MaskMemory masks_;
  MaskPlaces places_;
  std::vector<int32_t> allows_all_;
  absl::flat_hash_map<int64_t, std::unique_ptr<HeldGrammar>> grammars_;  // by id
  absl::flat_hash_map<std::string, int64_t> ids_;                        // by packed spec
  std::deque<int64_t> queued_;  // to compile when there is room
  size_t num_live_ = 0;         // compiling or compiled
  absl::flat_hash_map<int64_t, Abandoned> abandoned_;
  absl::flat_hash_map<int64_t, User> users_;
  std::vector<HeldGrammar*> asked_;  // for masks; their replies have not come
  std::vector<int64_t> foreseen_;    // the orders of the requests
  int64_t num_foreseen_ = 0;
  size_t num_late_ = 0;
  SchedulerOutput* step_ = nullptr;  // whose masks are being made
  std::vector<RowInStep> rows_in_step_;
  std::vector<GrammarFailure> failures_;
  int64_t next_id_ = 1;
  int64_t num_uses_ = 0;
  std::function<void(GrammarCompiled)> post_;
  std::unique_ptr<ForkedJobs> compilers_;  // last: its thread must end first
};

}  // namespace tandem
