#include "engine_core/grammar/grammar_service.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/packets.h"

namespace tandem {
namespace {

// Compiled grammars that are kept without a request that uses them.
constexpr size_t kMaxIdleGrammars = 32;
// How often a request waits for its grammar again after the process was killed.
constexpr int kMaxRestarts = 3;
constexpr int64_t kBeforeAll = -1;  // in the order of requests
constexpr double kForEver = 1e9;    // seconds
constexpr std::string_view kRefusedToken = "the grammar does not allow a token that was sampled";

// Whether nothing but its grammar decides about a request's token where that allows one alone, and
// nobody wants to see its logits.
bool IsChosenByMaskAlone(const Request& request) {
  const wire::SamplingParams& params = request.wire.sampling_params;
  const bool has_penalties = params.presence_penalty != 0 || params.frequency_penalty != 0 ||
                             params.repetition_penalty != 1;
  const bool bans_tokens = !params.allowed_token_ids.empty() || !params.bad_words.empty() ||
                           !params.bad_words_token_ids.empty() || !params.logit_bias.empty() ||
                           request.num_output_tokens() < params.min_tokens;
  const bool shows_logits = params.logprobs.has_value() || !params.logprob_token_ids.empty();
  return !has_penalties && !bans_tokens && !shows_logits && !params.thinking_token_budget;
}

// What ends a request whose grammar's process was lost.
Status FinalStatus(const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return status;
  return InternalError("the process of its grammar was ended " + std::to_string(kMaxRestarts + 1) +
                       " times");
}

int NumCompilers() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
}

}  // namespace

GrammarService::GrammarService(const GrammarServiceOptions& options, MaskMemory masks)
    : options_(options),
      masks_(std::move(masks)),
      places_(options.max_num_seqs, 1 + options.max_drafts),
      allows_all_(masks_.rows().mask(0).size(), -1) {}

StatusOr<std::unique_ptr<GrammarService>> GrammarService::Create(
    const GrammarServiceOptions& options, const Clock* clock,
    std::function<void(GrammarCompiled)> post) {
  const int32_t num_rows = MaskPlaces::NumRows(options.max_num_seqs, 1 + options.max_drafts);
  ASSIGN_OR_RETURN(MaskMemory masks, MaskMemory::Create(num_rows, options.vocab_size));
  std::unique_ptr<GrammarService> service(new GrammarService(options, std::move(masks)));
  service->post_ = std::move(post);
  const Status overdue =
      InvalidArgumentError("the grammar takes too long to compile" + std::string(kHowToShorten));
  service->compilers_ = std::make_unique<ForkedJobs>(
      ForkedJobsOptions{
          .command = {options.program, options.model_folder, std::to_string(options.vocab_size),
                      options.tokenizer_folder},
          .fds = {service->masks_.file()},
          .thread_name = "grammars",
          .max_running = NumCompilers(),
          .unavailable = "structured outputs are not available",
          .kept_waiting = overdue,
          .overdue = overdue,
          .resting = InvalidArgumentError("the compiler of the grammar stops within it, and does "
                                          "nothing" +
                                          std::string(kHowToShorten)),
          .killed = InvalidArgumentError("the grammar ends its compiler without a word")},
      clock);
  return service;
}

// ---- compiling ----

bool GrammarService::Await(const Request& request) {
  const User* waiting = FindUser(request.order);
  if (waiting != nullptr && waiting->is_waiting) return false;  // for a mask that is late
  StatusOr<GrammarSpec> spec =
      MakeGrammarSpec(*request.wire.sampling_params.structured_outputs, options_.defaults);
  CHECK(spec.ok()) << spec.status().ToString();
  HeldGrammar* grammar = FindOrMake(PackGrammarSpec(*spec));
  User& user = users_[request.order];
  user.id = request.id();
  user.grammar = grammar;
  user.has_matcher = false;
  user.foreseen_row = -1;
  ++grammar->num_users;
  user.is_waiting = !grammar->is_ready();
  CompileQueued();
  return !user.is_waiting;
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
    const auto done = [this, id = grammar->id()](StatusOr<ForkedJobResult> result) {
      GrammarCompiled compiled = {.grammar_id = id, .status = result.status(), .socket = nullptr};
      if (result.ok()) compiled.socket = std::make_shared<UniqueFd>(std::move(result->socket));
      post_(std::move(compiled));
    };
    compilers_->Submit("g", grammar->packed_spec(), done);
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
  // One that still writes a mask is left for the next time.
  std::erase_if(idle, [](const HeldGrammar* grammar) { return grammar->owes_replies(); });
  for (size_t i = 0; i + num_kept < idle.size(); ++i) Erase(idle[i]);
}

std::vector<GrammarResult> GrammarService::Take(const GrammarCompiled& compiled) {
  std::vector<GrammarResult> results;
  const auto entry = grammars_.find(compiled.grammar_id);
  if (entry == grammars_.end()) {
    LookAtAbandoned(compiled.grammar_id);
    EndWaitsForPlaces(&results);
    return results;
  }
  HeldGrammar* grammar = entry->second.get();
  if (grammar->is_late) {
    TakeLate(grammar, &results);
    EndWaitsForPlaces(&results);
  } else if (compiled.status.ok()) {
    grammar->SetReady(compiled.socket);
    EndWaits(grammar, &results);
  } else {
    for (const auto& [order, user] : users_) {
      if (user.grammar == grammar) results.push_back({user.id, order, compiled.status});
    }
    for (const GrammarResult& result : results) users_.erase(result.request_order);
    Erase(grammar);
  }
  std::ranges::sort(results, {}, &GrammarResult::request_order);
  CompileQueued();
  return results;
}

void GrammarService::EndWaits(const HeldGrammar* grammar, std::vector<GrammarResult>* results) {
  for (auto& [order, user] : users_) {
    if (user.grammar != grammar || !std::exchange(user.is_waiting, false)) continue;
    user.awaits_place = false;
    results->push_back({user.id, order, OkStatus()});
  }
}

// Whether there is one they find out.
void GrammarService::EndWaitsForPlaces(std::vector<GrammarResult>* results) {
  for (auto& [order, user] : users_) {
    if (!std::exchange(user.awaits_place, false)) continue;
    if (!std::exchange(user.is_waiting, false)) continue;
    results->push_back({user.id, order, OkStatus()});
  }
}

void GrammarService::Erase(HeldGrammar* grammar) {
  if (std::erase(queued_, grammar->id()) == 0) --num_live_;
  std::erase(asked_, grammar);
  ids_.erase(grammar->packed_spec());
  grammars_.erase(grammar->id());
}

// ---- masks ----

GrammarService::User* GrammarService::FindUser(int64_t order) {
  const auto entry = users_.find(order);
  return entry == users_.end() || entry->second.grammar == nullptr ? nullptr : &entry->second;
}

void GrammarService::Foresee(const Scheduler& scheduler) {
  if (users_.empty()) return;
  for (const Request* request : scheduler.running()) {
    const bool is_decoding = request->num_output_tokens() > 0 && request->num_steps_in_flight == 0;
    if (!is_decoding || !request->has_grammar_begun()) continue;
    User* user = FindUser(request->order);
    if (user == nullptr || user->foreseen_row >= 0 || user->kept_row >= 0) continue;
    if (!user->grammar->is_ready()) continue;
    user->foreseen_row = places_.RowOf(request->slot);
    if (user->foreseen_row == MaskPlaces::kNone) continue;
    foreseen_.push_back(request->order);
    AddMatcherStep(*request, user->foreseen_row, request->drafts.token_ids, user);
  }
  SendPackets();
}

void GrammarService::BeginMasks(Step* step) {
  SchedulerOutput& output = step->output;
  const bool has_others = !output.token_masks.empty();
  rows_in_step_.clear();
  size_t num_used = 0;
  for (size_t i = 0; i < step->requests.size(); ++i) {
    const Request& request = *step->requests[i];
    const ScheduledRequest& scheduled = output.requests[i];
    if (!scheduled.needs_sample || !request.has_grammar_begun()) continue;
    const User* user = FindUser(request.order);
    const int32_t foreseen = user == nullptr ? MaskPlaces::kNone : user->foreseen_row;
    const bool is_made = foreseen != MaskPlaces::kNone && foreseen == places_.RowOf(scheduled.slot);
    num_used += is_made ? 1 : 0;
    const auto num_drafts = static_cast<size_t>(scheduled.num_draft_tokens);
    rows_in_step_.push_back({.request_order = request.order,
                             .request_idx = static_cast<int32_t>(i),
                             .row = MaskPlaces::kNone,
                             .num_drafts = scheduled.num_draft_tokens,
                             .max_run = MaxRun(request, num_drafts),
                             .is_made = is_made});
  }
  num_foreseen_ += static_cast<int64_t>(num_used);
  // What was foreseen in vain is written to rows that may be others' now.
  if (num_used < foreseen_.size()) ReceiveReplies();
  ForgetForeseen();
  if (rows_in_step_.empty()) return;
  step_ = &output;
  for (RowInStep& row : rows_in_step_) PlaceMasks(*step, &row);
  if (has_others) std::ranges::stable_sort(output.token_masks, {}, &TokenMask::request_idx);
  output.finish_token_masks = [this] { FinishMasks(); };
  SendPackets();
}

void GrammarService::PlaceMasks(const Step& step, RowInStep* row) {
  const auto i = static_cast<size_t>(row->request_idx);
  const ScheduledRequest& scheduled = step_->requests[i];
  User* user = FindUser(row->request_order);
  if (user != nullptr && TakeKept(*step.requests[i], scheduled, user)) row->is_made = true;
  if (places_.RowOf(scheduled.slot) == MaskPlaces::kNone) {
    // The masks of earlier requests are left to them while another place may become free.
    const int64_t first = IsOneLate() ? row->request_order : kBeforeAll;
    while (places_.RowOf(scheduled.slot) == MaskPlaces::kNone && DropKeptAfter(first)) {
    }
  }
  row->row = places_.RowOf(scheduled.slot);
  for (int32_t place = 0; place <= row->num_drafts; ++place) {
    const bool has_row = row->row != MaskPlaces::kNone;
    step_->token_masks.push_back({.request_idx = row->request_idx,
                                  .words = has_row ? MaskAt(row->row + place) : allows_all_});
  }
  if (user == nullptr || row->is_made) return;
  if (user->is_waiting || !user->grammar->is_ready()) {
    Wait(row->request_order, user);
  } else if (row->row == MaskPlaces::kNone && IsOneLate()) {
    user->awaits_place = true;
    Wait(row->request_order, user);
  } else if (row->row == MaskPlaces::kNone) {
    Fail(row->request_order, user,
         ResourceExhaustedError("too many processes of grammars stand still"));
  } else {
    AddMatcherStep(*step.requests[i], row->row, step_->Drafts(scheduled), user);
  }
}

// Whether the mask that came too late for an earlier step is the one for this step.
bool GrammarService::TakeKept(const Request& request, const ScheduledRequest& scheduled,
                              User* user) {
  if (user->kept_row < 0) return false;
  if (!user->has_matcher || user->num_taken != request.num_output_tokens() ||
      scheduled.num_draft_tokens > 0) {
    DropKept(user);
    return false;
  }
  places_.Give(scheduled.slot, std::exchange(user->kept_row, -1));
  return true;
}

// The last of these requests' masks, which is made once more in its turn. False: there is none.
bool GrammarService::DropKeptAfter(int64_t first) {
  int64_t youngest = first;
  for (const auto& [order, user] : users_) {
    if (user.kept_row >= 0) youngest = std::max(youngest, order);
  }
  if (youngest == first) return false;
  DropKept(&users_.at(youngest));
  return true;
}

void GrammarService::AddMatcherStep(const Request& request, int32_t row,
                                    std::span<const TokenId> drafts, User* user) {
  HeldGrammar* grammar = user->grammar;
  if (!user->has_matcher) user->num_taken = request.grammar_begin();
  const int32_t num_known = request.num_prompt_tokens + user->num_taken;
  const auto first = static_cast<size_t>(num_known);
  const MatcherStep step = {
      .matcher_id = request.order,
      .mask_row = row,
      .allows_special_tokens =
          !request.wire.sampling_params.skip_special_tokens ||
          request.wire.sampling_params.structured_outputs->structural_tag.has_value(),
      .tokens = std::span(request.token_ids).subspan(first),
      .max_run = MaxRun(request, drafts.size()),
      .drafts = drafts};
  if (std::ranges::count(asked_, grammar) == 0) asked_.push_back(grammar);
  grammar->last_use = ++num_uses_;
  user->has_matcher = true;
  user->num_taken = request.num_output_tokens();
  grammar->Add(step);
  grammar->asks.push_back({request.order, request.slot, row});
}

void GrammarService::SendPackets() {
  const std::vector<HeldGrammar*> asked = asked_;
  for (HeldGrammar* grammar : asked) {
    if (!grammar->has_steps()) continue;
    if (const Status sent = grammar->Send(); !sent.ok()) Lose(grammar, sent);
  }
}

void GrammarService::ReceiveReplies() {
  const std::vector<HeldGrammar*> asked = std::exchange(asked_, {});
  if (asked.empty()) return;
  const double deadline = clock_.Monotonic() + options_.max_wait_s;
  for (HeldGrammar* grammar : asked) {
    std::vector<int64_t> refused;
    const Status received = grammar->Receive(deadline, &refused);
    for (const int64_t order : refused) {
      User* user = FindUser(order);
      if (user != nullptr) Fail(order, user, InternalError(std::string(kRefusedToken)));
    }
    if (received.ok()) {
      grammar->asks.clear();
    } else if (received.code() == StatusCode::kDeadlineExceeded) {
      Delay(grammar);
    } else {
      Lose(grammar, received);
    }
  }
}

void GrammarService::ForgetForeseen() {
  for (const int64_t order : foreseen_) {
    const auto user = users_.find(order);
    if (user != users_.end()) user->second.foreseen_row = -1;
  }
  foreseen_.clear();
}

// Tokens of a run that the request may take without a look at logits.
int32_t GrammarService::MaxRun(const Request& request, size_t num_drafts) const {
  // Drafts stand where the run would; those that are right are the run.
  if (!options_.finds_runs || num_drafts > 0 || !IsChosenByMaskAlone(request)) return 0;
  const int32_t most =
      std::min(options_.max_model_len - request.num_tokens(),
               request.wire.sampling_params.max_tokens - request.num_output_tokens());
  return std::min(most, static_cast<int32_t>(kMaxRunTokens));
}

void GrammarService::FinishMasks() {
  ReceiveReplies();
  for (const RowInStep& row : rows_in_step_) {
    const User* user = FindUser(row.request_order);
    if (user != nullptr && !user->is_waiting) {
      TakeRun(row, step_);
    } else {
      AllowAll(row, step_);
    }
  }
  rows_in_step_.clear();
}

// In place of its masks, which a process may still write.
void GrammarService::AllowAll(const RowInStep& row, SchedulerOutput* output) const {
  auto mask =
      std::ranges::lower_bound(output->token_masks, row.request_idx, {}, &TokenMask::request_idx);
  for (; mask != output->token_masks.end() && mask->request_idx == row.request_idx; ++mask) {
    mask->words = allows_all_;
  }
}

// The first of its tokens is the one that is sampled.
void GrammarService::TakeRun(const RowInStep& row, SchedulerOutput* output) const {
  const std::span<const int32_t> run = masks_.rows().run(static_cast<size_t>(row.row));
  if (row.max_run < 2 || run[0] < 2 || run[0] > row.max_run) return;
  const auto forced = run.subspan(2, static_cast<size_t>(run[0]) - 1);
  const auto is_token = [this](int32_t id) { return id >= 0 && id < options_.vocab_size; };
  if (!std::ranges::all_of(forced, is_token)) return;
  const auto mask =
      std::ranges::lower_bound(output->token_masks, row.request_idx, {}, &TokenMask::request_idx);
  mask->forced_begin = static_cast<int32_t>(output->forced_token_ids.size());
  mask->num_forced = static_cast<int32_t>(forced.size());
  output->forced_token_ids.insert(output->forced_token_ids.end(), forced.begin(), forced.end());
}

// ---- processes that are late ----

bool GrammarService::IsOneLate() const {
  return std::ranges::any_of(grammars_, [](const auto& each) { return each.second->is_late; });
}

void GrammarService::Delay(HeldGrammar* grammar) {
  LOG_DEBUG << "a grammar's process does not answer; its requests wait, others run on";
  ++num_late_;
  grammar->is_late = true;
  grammar->given_up_at = clock_.Monotonic() + options_.reply_timeout_s;
  std::erase_if(grammar->asks, [this](const HeldGrammar::Ask& ask) {
    return !places_.SetAside(ask.slot, ask.row);
  });
  for (const HeldGrammar::Ask& ask : grammar->asks) {
    User* user = FindUser(ask.request_order);
    if (user != nullptr && !user->is_waiting) Wait(ask.request_order, user);
  }
  Watch(grammar->id(), grammar->socket(), options_.reply_timeout_s);
}

void GrammarService::Wait(int64_t order, User* user) {
  user->is_waiting = true;
  user->foreseen_row = -1;
  failures_.push_back(
      {.request_id = user->id, .request_order = order, .status = OkStatus(), .starts_again = true});
}

void GrammarService::Watch(int64_t grammar_id, const std::shared_ptr<UniqueFd>& socket,
                           double timeout_s) {
  compilers_->Watch(socket, timeout_s, [this, grammar_id] {
    post_({.grammar_id = grammar_id, .status = OkStatus(), .socket = nullptr});
  });
}

void GrammarService::TakeLate(HeldGrammar* grammar, std::vector<GrammarResult>* results) {
  std::vector<int64_t> refused;
  const double now = clock_.Monotonic();
  const Status received = grammar->Receive(now, &refused);
  for (const int64_t order : refused) {
    User* user = FindUser(order);
    if (user == nullptr) continue;
    CloseMatcher(order, user);
    results->push_back({user->id, order, InternalError(std::string(kRefusedToken))});
  }
  if (received.ok()) {
    KeepMasks(grammar);
    grammar->is_late = false;
    EndWaits(grammar, results);
  } else if (received.code() != StatusCode::kDeadlineExceeded) {
    ReplaceLate(grammar, received, results);
  } else if (now < grammar->given_up_at) {
    Watch(grammar->id(), grammar->socket(), grammar->given_up_at - now);
  } else {
    ReplaceLate(grammar, UnavailableError("it does not answer"), results);
  }
}

// What it has written is right for requests that have taken no token since.
void GrammarService::KeepMasks(HeldGrammar* grammar) {
  for (const HeldGrammar::Ask& ask : grammar->asks) {
    User* user = FindUser(ask.request_order);
    const bool is_users = user != nullptr && user->grammar == grammar && user->has_matcher;
    if (is_users && user->is_waiting) {
      DropKept(user);
      user->kept_row = ask.row;
    } else {
      places_.Release(ask.row);
    }
  }
  grammar->asks.clear();
}

void GrammarService::ReplaceLate(HeldGrammar* grammar, const Status& status,
                                 std::vector<GrammarResult>* results) {
  LOG_WARNING << "a grammar's process is lost: " << status.message();
  // It ends by itself when it goes on, but until then it may write.
  const bool may_write = grammar->owes_replies();
  Abandoned abandoned = {.socket = grammar->socket(), .rows = {}};
  for (const HeldGrammar::Ask& ask : grammar->asks) abandoned.rows.push_back(ask.row);
  std::vector<int64_t> again;
  for (auto& [order, user] : users_) {
    if (user.grammar != grammar) continue;
    user.has_matcher = false;
    const bool may_restart =
        status.code() == StatusCode::kUnavailable && user.num_restarts < kMaxRestarts;
    if (!user.is_waiting) {
      Fail(order, &user, status);
    } else if (may_restart) {
      ++user.num_restarts;
      user.awaits_place = false;
      again.push_back(order);
    } else {
      CloseMatcher(order, &user);
      results->push_back({user.id, order, FinalStatus(status)});
    }
  }
  std::string packed_spec = grammar->packed_spec();
  const int64_t id = grammar->id();
  Erase(grammar);
  for (const int64_t order : again) {
    User& user = users_.at(order);
    user.grammar = FindOrMake(packed_spec);
    ++user.grammar->num_users;
  }
  if (may_write) {
    shutdown(abandoned.socket->get(), SHUT_WR);
    Watch(id, abandoned.socket, kForEver);
    abandoned_.emplace(id, std::move(abandoned));
  } else {
    for (const int32_t row : abandoned.rows) places_.Release(row);
  }
}

void GrammarService::LookAtAbandoned(int64_t grammar_id) {
  const auto entry = abandoned_.find(grammar_id);
  if (entry == abandoned_.end()) return;
  const Abandoned& abandoned = entry->second;
  StatusOr<Packet> packet = ReceivePacket(abandoned.socket->get(), 0);
  while (packet.ok()) packet = ReceivePacket(abandoned.socket->get(), 0);
  if (packet.status().code() == StatusCode::kDeadlineExceeded) {
    return Watch(grammar_id, abandoned.socket, kForEver);
  }
  for (const int32_t row : abandoned.rows) places_.Release(row);
  abandoned_.erase(entry);
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
  failure.status = FinalStatus(status);
  ++user->num_restarts;
  DropKept(user);
  CloseMatcher(order, user);
  failures_.push_back(std::move(failure));
}

void GrammarService::DropKept(User* user) {
  const int32_t row = std::exchange(user->kept_row, -1);
  if (row >= 0) places_.Release(row);
}

void GrammarService::CloseMatcher(int64_t order, User* user) {
  HeldGrammar* grammar = std::exchange(user->grammar, nullptr);
  if (grammar == nullptr) return;
  --grammar->num_users;
  // It goes with the next packet; its reply is waited for then.
  if (std::exchange(user->has_matcher, false)) {
    grammar->Add({.matcher_id = order,
                  .mask_row = kClosesMatcher,
                  .allows_special_tokens = false,
                  .tokens = {}});
  }
}

void GrammarService::DropEnded(const Scheduler& scheduler) {
  absl::erase_if(users_, [&](auto& entry) {
    auto& [order, user] = entry;
    const Request* request = scheduler.Find(user.id);
    if (request != nullptr && request->order == order) return false;
    DropKept(&user);
    CloseMatcher(order, &user);
    return true;
  });
  DropIdle(kMaxIdleGrammars);
}

}  // namespace tandem
