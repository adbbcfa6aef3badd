#include "engine_core/grammar/grammar_service.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace tandem {
namespace {

// Compiled grammars that are kept without a request that uses them.
constexpr size_t kMaxIdleGrammars = 32;
// How often a request waits for its grammar again after the process was killed.
constexpr int kMaxRestarts = 3;

int NumCompilers() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
}

}  // namespace

GrammarService::GrammarService(const GrammarServiceOptions& options, MaskMemory masks)
    : options_(options), masks_(std::move(masks)) {}

StatusOr<std::unique_ptr<GrammarService>> GrammarService::Create(
    const GrammarServiceOptions& options, const Clock* clock,
    std::function<void(GrammarCompiled)> post) {
  ASSIGN_OR_RETURN(MaskMemory masks, MaskMemory::Create(options.max_num_seqs, options.vocab_size));
  std::unique_ptr<GrammarService> service(new GrammarService(options, std::move(masks)));
  service->thread_ =
      std::make_unique<GrammarThread>(GrammarThreadOptions{.program = options.program,
                                                           .model_folder = options.model_folder,
                                                           .vocab_size = options.vocab_size,
                                                           .masks_file = service->masks_.file(),
                                                           .max_compiling = NumCompilers()},
                                      clock, std::move(post));
  return service;
}

// ---- compiling ----

bool GrammarService::Await(const Request& request) {
  StatusOr<GrammarSpec> spec =
      MakeGrammarSpec(*request.wire.sampling_params.structured_outputs, options_.defaults);
  CHECK(spec.ok()) << spec.status().ToString();
  HeldGrammar* grammar = FindOrMake(PackGrammarSpec(*spec));
  User& user = users_[request.order];
  user.id = request.id();
  user.grammar = grammar;
  user.has_matcher = false;
  ++grammar->num_users;
  CompileQueued();
  return grammar->is_ready();
}

HeldGrammar* GrammarService::FindOrMake(std::string packed_spec) {
  const auto [entry, is_new] = ids_.try_emplace(packed_spec, next_id_);
  if (!is_new) return grammars_.at(entry->second).get();
  auto made = std::make_unique<HeldGrammar>(next_id_, std::move(packed_spec));
  HeldGrammar* grammar = made.get();
  grammars_.emplace(next_id_, std::move(made));
  queued_.push_back(next_id_++);
  return grammar;
}

void GrammarService::CompileQueued() {
  while (!queued_.empty() && MakeRoom()) {
    HeldGrammar* grammar = grammars_.at(queued_.front()).get();
    if (grammar->num_users == 0) {  // its requests have ended
      Erase(grammar);
      continue;
    }
    queued_.pop_front();
    ++num_live_;
    thread_->Compile({.grammar_id = grammar->id(), .packed_spec = grammar->packed_spec()});
  }
}

// Each grammar is a process, so their number is bounded.
bool GrammarService::MakeRoom() {
  const size_t max_live = static_cast<size_t>(options_.max_num_seqs) + kMaxIdleGrammars;
  if (num_live_ >= max_live) DropIdle(0);
  return num_live_ < max_live;
}

void GrammarService::DropIdle(size_t num_kept) {
  std::vector<HeldGrammar*> idle;
  for (const auto& [id, grammar] : grammars_) {
    if (grammar->is_ready() && grammar->num_users == 0) idle.push_back(grammar.get());
  }
  if (idle.size() <= num_kept) return;
  std::ranges::sort(idle, {}, &HeldGrammar::last_use);
  for (size_t i = 0; i < idle.size() - num_kept; ++i) Erase(idle[i]);
}

std::vector<GrammarResult> GrammarService::Take(const GrammarCompiled& compiled) {
  std::vector<GrammarResult> results;
  const auto entry = grammars_.find(compiled.grammar_id);
  if (entry == grammars_.end()) return results;
  HeldGrammar* grammar = entry->second.get();
  for (const auto& [order, user] : users_) {
    if (user.grammar == grammar) results.push_back({user.id, order, compiled.status});
  }
  std::ranges::sort(results, {}, &GrammarResult::request_order);
  if (compiled.status.ok()) {
    grammar->SetReady(compiled.socket);
  } else {
    for (const GrammarResult& result : results) users_.erase(result.request_order);
    Erase(grammar);
  }
  CompileQueued();
  return results;
}

void GrammarService::Erase(HeldGrammar* grammar) {
  if (std::erase(queued_, grammar->id()) == 0) --num_live_;
  std::erase(in_step_, grammar);
  ids_.erase(grammar->packed_spec());
  grammars_.erase(grammar->id());
}

// ---- masks ----

void GrammarService::BeginMasks(Step* step) {
  SchedulerOutput& output = step->output;
  const bool has_others = !output.token_masks.empty();
  rows_in_step_.clear();
  for (size_t i = 0; i < step->requests.size(); ++i) {
    const Request& request = *step->requests[i];
    const bool is_masked = output.requests[i].needs_sample && request.has_grammar_begun();
    if (is_masked) AddMask(static_cast<int32_t>(i), request, &output);
  }
  if (rows_in_step_.empty()) return;
  if (has_others) std::ranges::sort(output.token_masks, {}, &TokenMask::request_idx);
  output.finish_token_masks = [this] { FinishMasks(); };
  const std::vector<HeldGrammar*> in_step = in_step_;
  for (HeldGrammar* grammar : in_step) {
    if (const Status sent = grammar->Send(); !sent.ok()) Lose(grammar, sent);
  }
}

void GrammarService::AddMask(int32_t request_idx, const Request& request, SchedulerOutput* output) {
  const auto row = static_cast<int32_t>(output->token_masks.size());
  output->token_masks.push_back({.request_idx = request_idx, .words = masks_.row(row)});
  rows_in_step_.emplace_back(request.order, row);
  const auto entry = users_.find(request.order);
  if (entry == users_.end() || entry->second.grammar == nullptr) return;
  User& user = entry->second;
  HeldGrammar* grammar = user.grammar;
  if (!user.has_matcher) user.num_taken = request.grammar_begin();
  const auto first = static_cast<size_t>(request.num_prompt_tokens + user.num_taken);
  const MatcherStep step = {
      .matcher_id = request.order,
      .mask_row = row,
      .allows_special_tokens =
          !request.wire.sampling_params.skip_special_tokens ||
          request.wire.sampling_params.structured_outputs->structural_tag.has_value(),
      .tokens = std::span(request.token_ids).subspan(first)};
  if (std::ranges::count(in_step_, grammar) == 0) in_step_.push_back(grammar);
  grammar->last_use = ++num_uses_;
  user.has_matcher = true;
  user.num_taken = request.num_output_tokens();
  if (const Status added = grammar->Add(step); !added.ok()) Lose(grammar, added);
}

void GrammarService::FinishMasks() {
  const std::vector<HeldGrammar*> in_step = std::exchange(in_step_, {});
  for (HeldGrammar* grammar : in_step) {
    std::vector<int64_t> refused;
    const Status received = grammar->Receive(&refused);
    for (const int64_t order : refused) {
      const auto user = users_.find(order);
      if (user == users_.end() || user->second.grammar == nullptr) continue;
      Fail(order, &user->second,
           InternalError("the grammar does not allow a token that was sampled"));
    }
    if (!received.ok()) Lose(grammar, received);
  }
  for (const auto& [order, row] : std::exchange(rows_in_step_, {})) {
    const auto user = users_.find(order);
    const bool is_made = user != users_.end() && user->second.grammar != nullptr;
    if (!is_made) std::ranges::fill(masks_.row(row), -1);
  }
}

// ---- ends ----

void GrammarService::Lose(HeldGrammar* grammar, const Status& status) {
  LOG_WARNING << "a grammar's process is lost: " << status.message();
  for (auto& [order, user] : users_) {
    if (user.grammar != grammar) continue;
    user.has_matcher = false;
    Fail(order, &user, status);
  }
  Erase(grammar);
}

void GrammarService::Fail(int64_t order, User* user, const Status& status) {
  const bool was_killed = status.code() == StatusCode::kUnavailable;
  GrammarFailure failure = {.request_id = user->id,
                            .request_order = order,
                            .status = status,
                            .starts_again = was_killed && user->num_restarts < kMaxRestarts};
  if (was_killed) {
    failure.status = InternalError("the process of its grammar was ended " +
                                   std::to_string(kMaxRestarts + 1) + " times");
  }
  ++user->num_restarts;
  CloseMatcher(order, user);
  failures_.push_back(std::move(failure));
}

void GrammarService::CloseMatcher(int64_t order, User* user) {
  HeldGrammar* grammar = std::exchange(user->grammar, nullptr);
  if (grammar == nullptr) return;
  --grammar->num_users;
  // It goes with the next packet; its reply is waited for then.
  if (std::exchange(user->has_matcher, false)) {
    (void)grammar
        ->Add({.matcher_id = order,
               .mask_row = kClosesMatcher,
               .allows_special_tokens = false,
               .tokens = {}})
        .ok();
  }
}

void GrammarService::DropEnded(const Scheduler& scheduler) {
  absl::erase_if(users_, [&](auto& entry) {
    auto& [order, user] = entry;
    const Request* request = scheduler.Find(user.id);
    if (request != nullptr && request->order == order) return false;
    CloseMatcher(order, &user);
    return true;
  });
  DropIdle(kMaxIdleGrammars);
}

}  // namespace tandem
