// An engine core whose executor draws any token that the mask allows, with real grammars in real
// processes, over the shipped model's vocabulary.

#include "engine_core/grammar/grammar_service.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "common/mailbox.h"
#include "common/strings.h"
#include "engine_core/engine_core.h"
#include "frontend/text/tokenizer.h"
#include "proto_msgpack/codec.h"
#include "tests/support/dice.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int32_t kVocabSize = 3072;
constexpr uint64_t kSeed = 20261122;
const std::string kModel = std::string(TANDEM_SOURCE_DIR) + "/deploy/models/tandem-tiny";

const Tokenizer& ShippedTokenizer() {
  static const std::shared_ptr<const Tokenizer> tokenizer = *Tokenizer::Load(kModel);
  return *tokenizer;
}

TokenId ByteToken(int byte) {
  const std::string text(1, static_cast<char>(byte));
  for (TokenId id = 0; id < kVocabSize; ++id) {
    if (ShippedTokenizer().TokenBytes(id) == text) return id;
  }
  FAIL("no token for byte " << byte);
  return kNoToken;
}

// Draws tokens; the end as soon as it is allowed, half of the time. A draw depends on the tokens
// before it alone. As drafts it proposes the outputs of another run, now and then a wrong token.
class DrawingExecutor final : public Executor {
 public:
  explicit DrawingExecutor(const ExecutorLimits& limits) : limits_(limits) {}
  using Outputs = std::map<RequestId, std::vector<TokenId>>;
  void DraftFrom(const Outputs* outputs) { known_ = outputs; }
  void SampleUnmasked(RequestId id) { unmasked_ = std::move(id); }
  const ExecutorLimits& limits() const override { return limits_; }
  Status Submit(const SchedulerOutput& step) override {
    if (step.finish_token_masks) step.finish_token_masks();
    ModelOutput& result = results_.emplace_back();
    for (const AdmittedRequest& admitted : step.admitted) {
      const RequestSlot slot = step.requests[static_cast<size_t>(admitted.request_idx)].slot;
      rows_[slot].assign(admitted.token_ids.begin(), admitted.token_ids.end());
      admitted_[slot] = {*admitted.request_id, admitted.num_prompt_tokens};
    }
    size_t next_mask = 0;
    for (size_t i = 0; i < step.requests.size(); ++i) {
      const ScheduledRequest& request = step.requests[i];
      std::vector<TokenId>& row = rows_[request.slot];
      const auto end = static_cast<size_t>(request.num_computed_tokens +
                                           request.num_scheduled_tokens - request.num_draft_tokens);
      REQUIRE(end <= row.size());
      REQUIRE(request.needs_sample == (end == row.size()));
      std::vector<TokenMask> masks;
      while (next_mask < step.token_masks.size() &&
             step.token_masks[next_mask].request_idx == static_cast<int32_t>(i)) {
        masks.push_back(step.token_masks[next_mask++]);
      }
      result.sampled_token_ids.push_back(kNoToken);
      if (request.needs_sample) Sample(step, request, masks, &result);
    }
    CHECK(next_mask == step.token_masks.size());
    num_masks += step.token_masks.size();
    return OkStatus();
  }
  Status Collect(ModelOutput* result) override {
    *result = std::move(results_.front());
    results_.erase(results_.begin());
    return OkStatus();
  }

  size_t num_masks = 0;
  int num_accepted = 0, num_rejected = 0;

 private:
  void Sample(const SchedulerOutput& step, const ScheduledRequest& request,
              const std::vector<TokenMask>& masks, ModelOutput* result) {
    std::vector<TokenId>& row = rows_[request.slot];
    const std::span<const TokenId> drafts = step.Drafts(request);
    REQUIRE((masks.empty() || masks.size() == drafts.size() + 1));
    const bool uses_masks = !masks.empty() && admitted_[request.slot].first != unmasked_;
    DraftResult drafted = {
        .request_idx = static_cast<int32_t>(result->sampled_token_ids.size()) - 1,
        .num_verified = request.num_draft_tokens,
        .begin = static_cast<int32_t>(result->draft_token_ids.size())};
    for (size_t place = 0; place <= drafts.size(); ++place) {
      const TokenId token = Draw(row, uses_masks ? masks[place].words : std::span<const int32_t>());
      row.push_back(token);
      result->sampled_token_ids.back() = token;
      if (place == drafts.size() || token != drafts[place]) break;
      result->draft_token_ids.push_back(token);
      ++drafted.num_accepted;
    }
    num_accepted += drafted.num_accepted;
    num_rejected += drafted.num_verified - drafted.num_accepted;
    if (!masks.empty()) {
      for (const TokenId forced : step.Forced(masks[0])) row.push_back(forced);
    }
    if (known_ != nullptr) Propose(row, admitted_[request.slot], &drafted, result);
    if (drafted.num_verified > 0 || drafted.num_proposed > 0) result->drafts.push_back(drafted);
  }
  void Propose(const std::vector<TokenId>& row, const std::pair<RequestId, int32_t>& admitted,
               DraftResult* drafted, ModelOutput* result) {
    const auto& [id, num_prompt_tokens] = admitted;
    const std::vector<TokenId>& outputs = known_->at(id);
    const size_t num_outputs = row.size() - static_cast<size_t>(num_prompt_tokens);
    for (size_t i = num_outputs; i < outputs.size() && i < num_outputs + 3; ++i) {
      if (row.size() + 1 + i - num_outputs >= static_cast<size_t>(limits_.max_model_len)) break;
      result->draft_token_ids.push_back(dice_.Chance(4) ? dice_.Roll(0, kVocabSize - 1)
                                                        : outputs[i]);
      ++drafted->num_proposed;
    }
  }

  static TokenId Draw(const std::vector<TokenId>& row, std::span<const int32_t> mask) {
    if (mask.empty()) return 300;
    uint64_t seed = kSeed;
    for (const TokenId token : row) seed = seed * 1'000'003 + static_cast<uint64_t>(token);
    Dice dice(seed);
    std::vector<TokenId> allowed;
    for (TokenId id = 0; id < kVocabSize; ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
    }
    REQUIRE_FALSE(allowed.empty());
    const TokenId end = *ShippedTokenizer().eos_id();
    if (std::ranges::count(allowed, end) > 0 && dice.Chance(2)) return end;
    return allowed[static_cast<size_t>(dice.Roll(0, static_cast<int32_t>(allowed.size()) - 1))];
  }

  ExecutorLimits limits_;
  std::map<RequestSlot, std::vector<TokenId>> rows_;
  std::map<RequestSlot, std::pair<RequestId, int32_t>> admitted_;  // and the prompt's length
  std::vector<ModelOutput> results_;
  const Outputs* known_ = nullptr;
  RequestId unmasked_;
  Dice dice_{kSeed};
};

ExecutorLimits SmallLimits(int32_t num_blocks, int32_t num_drafts) {
  ExecutorLimits limits;
  limits.num_blocks = num_blocks;
  limits.block_size = 4;
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 256;
  limits.max_model_len = 128;
  limits.vocab_size = kVocabSize;
  limits.drafts.num_speculative_tokens = num_drafts;
  return limits;
}

// Of a service: how long a step waits for masks, and when a process is given up.
struct Patience {
  double max_wait_s = 60;
  double reply_timeout_s = 60;
};

class Engine {
 public:
  explicit Engine(bool async = false, int32_t num_blocks = 129, GrammarDefaults defaults = {},
                  bool finds_runs = true, int32_t num_drafts = 0, Patience patience = {})
      : executor(SmallLimits(num_blocks, num_drafts)) {
    auto service = GrammarService::Create(
        {.program = std::string(TANDEM_BIN_DIR) + "/tandem-grammar",
         .model_folder = kModel,
         .vocab_size = kVocabSize,
         .max_num_seqs = 4,
         .max_model_len = 128,
         .defaults = defaults,
         .finds_runs = finds_runs,
         .max_drafts = num_drafts,
         .max_wait_s = patience.max_wait_s,
         .reply_timeout_s = patience.reply_timeout_s},
        &clock, [this](GrammarCompiled compiled) { compiled_.Push(std::move(compiled)); });
    REQUIRE(service.ok());
    grammars = *std::move(service);
    EngineCoreOptions options;
    options.async_scheduling = async;
    options.grammars = grammars.get();
    core = *EngineCore::Create(options, &executor, &clock);
  }

  wire::EngineCoreRequest MakeRequest(RequestId id) const {
    wire::EngineCoreRequest request;
    request.request_id = std::move(id);
    request.prompt_token_ids = {10, 11, 12, 13, 14};
    request.sampling_params.max_tokens = 100;
    request.sampling_params.eos_token_id = ShippedTokenizer().eos_id();
    request.sampling_params.stop_token_ids = {0};  // the other end
    return request;
  }
  void AddRegex(RequestId id, std::string regex) {
    wire::EngineCoreRequest request = MakeRequest(std::move(id));
    request.sampling_params.structured_outputs.emplace().regex = std::move(regex);
    core->Handle(std::move(request));
  }
  void AddSchema(RequestId id, const std::string& schema) {
    wire::EngineCoreRequest request = MakeRequest(std::move(id));
    wire::StructuredOutputs& wanted = request.sampling_params.structured_outputs.emplace();
    wanted.json = wire::PackedString(schema);
    wanted.whitespace_pattern = "";
    core->Handle(std::move(request));
  }

  // One step; waits for grammars when there is nothing else to do.
  void Step() {
    std::vector<GrammarCompiled> compiled;
    if (!core->HasWork() && core->scheduler().num_requests() > 0) compiled_.Wait();
    compiled_.Drain(&compiled);
    for (GrammarCompiled& one : compiled) core->Handle(std::move(one));
    REQUIRE(core->Step().ok());
    std::vector<ClientMessage> messages;
    core->TakeMessages(&messages);
    for (ClientMessage& message : messages) {
      for (wire::EngineCoreOutput& record : message.outputs.outputs) {
        auto& tokens = outputs[record.request_id];
        tokens.insert(tokens.end(), record.new_token_ids.begin(), record.new_token_ids.end());
        if (record.finish_reason) reasons[record.request_id] = *record.finish_reason;
        if (record.error) errors[record.request_id] = record.error->message;
      }
    }
  }
  // Waits for what the compilers' thread reports.
  void TakeCompiled() {
    std::vector<GrammarCompiled> compiled;
    compiled_.Wait();
    compiled_.Drain(&compiled);
    for (GrammarCompiled& one : compiled) core->Handle(std::move(one));
  }
  void Finish() {
    for (int i = 0; core->scheduler().num_requests() > 0 || core->HasWork(); ++i) {
      REQUIRE(i < 10'000);
      Step();
    }
  }
  std::string Text(const RequestId& id) { return ShippedTokenizer().Decode(outputs[id], true); }

  SystemClock clock;
  DrawingExecutor executor;
  std::unique_ptr<GrammarService> grammars;
  std::unique_ptr<EngineCore> core;
  std::map<RequestId, std::vector<TokenId>> outputs;
  std::map<RequestId, wire::FinishReason> reasons;
  std::map<RequestId, std::string> errors;

 private:
  Mailbox<GrammarCompiled> compiled_;
};

constexpr char kSchema[] = R"({"type": "object", "properties": {
  "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
  "required": ["name", "age"]})";

void CheckSchemaOutput(const std::string& text) {
  INFO(text << " = " << HexEncode(text));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json.size() == 2);
  CHECK(json["name"].is_string());
  CHECK(json["age"].is_number_integer());
}

// The processes of tandem-grammar below this one.
std::vector<pid_t> GrammarProcesses() {
  std::map<pid_t, pid_t> parents;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    pid_t pid = 0, parent = 0;
    std::string name, state;
    if (stat >> pid >> name >> state >> parent && name == "(tandem-grammar)" && state != "Z") {
      parents[pid] = parent;
    }
  }
  std::vector<pid_t> ours;
  for (const auto& [pid, parent] : parents) {
    const auto above = parents.find(parent);
    if (parent == getpid() || (above != parents.end() && above->second == getpid())) {
      ours.push_back(pid);
    }
  }
  return ours;
}

TEST_CASE("outputs are what their grammars describe, also when preempted and when steps overlap") {
  const bool async = GENERATE(false, true);
  const int32_t num_blocks = GENERATE(129, 34);
  CAPTURE(async, num_blocks, kSeed);
  Engine engine(async, num_blocks);
  for (int i = 0; i < 3; ++i) {
    engine.AddRegex("regex" + std::to_string(i), "[a-f]{3,40}-[0-9]{30}");
    engine.AddSchema("schema" + std::to_string(i), kSchema);
  }
  engine.core->Handle(engine.MakeRequest("free"));
  engine.Finish();
  CHECK(engine.errors.empty());
  for (int i = 0; i < 3; ++i) {
    const std::string text = engine.Text("regex" + std::to_string(i));
    CHECK(std::regex_match(text, std::regex("[a-f]{3,40}-[0-9]{30}")));
    CheckSchemaOutput(engine.Text("schema" + std::to_string(i)));
  }
  CHECK(engine.reasons["schema0"] == wire::FinishReason::kStop);
  CHECK(engine.outputs["free"].size() == 100);
  CHECK(engine.grammars->num_grammars() == 2);
  CHECK(engine.grammars->num_users() == 0);
  CHECK(engine.executor.num_masks > 100);
  CHECK(engine.grammars->num_foreseen() > 100);
}

// Control characters are tokens of one byte: a text of them is a run.
std::string DrawRegex(Dice& dice) {
  std::string regex;
  for (int i = dice.Roll(1, 6); i > 0; --i) {
    if (dice.Chance(3)) regex += dice.Chance(2) ? "[a-c]{1,4}" : "([x-z]|\\x02\\x03\\x04\\x05)";
    for (int j = dice.Roll(0, 30); j > 0; --j) regex += "\\x0" + std::to_string(dice.Roll(1, 8));
  }
  return regex + "[a-c]";
}

// What ends, changes or shows a token.
void DrawParams(Dice& dice, wire::SamplingParams* params) {
  if (dice.Chance(3)) params->stop_token_ids.push_back(ByteToken(dice.Roll(1, 8)));
  if (dice.Chance(3)) params->max_tokens = dice.Roll(1, 40);
  if (dice.Chance(3)) params->min_tokens = dice.Roll(1, std::min(20, params->max_tokens));
  if (dice.Chance(4)) params->logprobs = 1;
  if (dice.Chance(4)) params->repetition_detection = {.max_pattern_size = 3, .min_count = 3};
}

TEST_CASE("runs of forced tokens give the outputs that single tokens give, with fewer samples") {
  const bool async = GENERATE(false, true);
  const int32_t num_blocks = GENERATE(129, 40);
  CAPTURE(async, num_blocks, kSeed);
  Engine runs(async, num_blocks), singles(async, num_blocks, {}, /*finds_runs=*/false);
  Dice dice(kSeed + 1);
  for (int i = 0; i < 24; ++i) {
    wire::EngineCoreRequest request = runs.MakeRequest("r" + std::to_string(i));
    request.sampling_params.structured_outputs.emplace().regex = DrawRegex(dice);
    DrawParams(dice, &request.sampling_params);
    CAPTURE(i, *request.sampling_params.structured_outputs->regex);
    runs.core->Handle(wire::EngineCoreRequest(request));
    singles.core->Handle(std::move(request));
  }
  runs.Finish();
  singles.Finish();
  for (const auto& [id, error] : runs.errors) UNSCOPED_INFO(id << ": " << error);
  CHECK(runs.errors.empty());
  CHECK(runs.outputs == singles.outputs);
  CHECK(runs.reasons == singles.reasons);
  CHECK(runs.executor.num_masks * 2 < singles.executor.num_masks);
}

TEST_CASE("drafts under a grammar give the outputs that no drafts give") {
  const bool async = GENERATE(false, true);
  const int32_t num_blocks = GENERATE(129, 40);
  CAPTURE(async, num_blocks, kSeed);
  Engine plain(false, 129, {}, /*finds_runs=*/false);
  Engine drafting(async, num_blocks, {}, /*finds_runs=*/true, /*num_drafts=*/3);
  drafting.executor.DraftFrom(&plain.outputs);
  Dice dice(kSeed + 2);
  for (int i = 0; i < 24; ++i) {
    wire::EngineCoreRequest request = plain.MakeRequest("r" + std::to_string(i));
    wire::StructuredOutputs& wanted = request.sampling_params.structured_outputs.emplace();
    if (dice.Chance(2)) {
      wanted.regex = DrawRegex(dice);
    } else {
      wanted.json = wire::PackedString(kSchema);
    }
    DrawParams(dice, &request.sampling_params);
    CAPTURE(i);
    plain.core->Handle(wire::EngineCoreRequest(request));
    plain.Finish();
    drafting.core->Handle(std::move(request));
  }
  if (!async) {  // this executor verifies drafts that it is given
    drafting.core->Handle(drafting.MakeRequest("free"));
    plain.core->Handle(plain.MakeRequest("free"));
    plain.Finish();
  }
  drafting.Finish();
  for (const auto& [id, error] : drafting.errors) UNSCOPED_INFO(id << ": " << error);
  CHECK(drafting.errors.empty());
  CHECK(drafting.outputs == plain.outputs);
  CHECK(drafting.reasons == plain.reasons);
  CHECK(drafting.executor.num_accepted > 100);
  CHECK(drafting.executor.num_rejected > 100);
}

// As if a mask had allowed what its matcher refuses.
TEST_CASE("a token that the grammar does not allow ends its request alone") {
  const bool async = GENERATE(false, true);
  Engine engine(async);
  engine.executor.SampleUnmasked("refused");
  for (const char* id : {"before", "refused", "after"}) engine.AddRegex(id, "[0-9]{20}");
  engine.Finish();
  CHECK(engine.errors.size() == 1);
  CHECK(engine.errors["refused"] == "the grammar does not allow a token that was sampled");
  CHECK(engine.reasons["refused"] == wire::FinishReason::kError);
  CHECK(engine.outputs["refused"].size() <= 1);
  for (const char* id : {"before", "after"}) {
    CHECK(std::regex_match(engine.Text(id), std::regex("[0-9]{20}")));
  }
  CHECK(engine.grammars->num_users() == 0);
}

TEST_CASE("an invalid grammar ends its requests alone, with what is wrong") {
  Engine engine;
  engine.AddRegex("wrong", "[0-9");
  engine.AddRegex("wrong too", "[0-9");
  engine.AddRegex("right", "[0-9]{3}");
  engine.Finish();
  CHECK(engine.errors.size() == 2);
  CHECK_THAT(engine.errors["wrong"], Catch::Matchers::Contains("Unclosed '['"));
  CHECK(engine.reasons["wrong too"] == wire::FinishReason::kError);
  CHECK(engine.Text("right").size() == 3);
  engine.AddRegex("wrong", "[0-9");
  engine.Finish();
  CHECK(engine.grammars->num_grammars() == 1);
}

TEST_CASE("a hostile grammar takes nothing but its request") {
  Engine engine;
  std::string nested;
  for (int i = 0; i < 200'000; ++i) nested += "(";
  engine.AddRegex("deep", nested + "a");
  engine.AddRegex("large", "((a{1,1000}b{1,1000}){1,1000}c{1,1000}){1,1000}");
  engine.AddRegex("right", "[0-9]{3}");
  engine.Finish();
  CHECK(engine.Text("right").size() == 3);
  CHECK(engine.errors.contains("deep"));
  for (const auto& [id, error] : engine.errors) {
    INFO(id << ": " << error);
    CHECK(id != "right");
    CHECK(error.find(".cc") == error.npos);
  }
}

TEST_CASE("requests go on with new processes after theirs were killed") {
  Engine engine;
  for (int i = 0; i < 4; ++i) engine.AddRegex("regex" + std::to_string(i), "[a-f]{60}");
  engine.AddSchema("schema", kSchema);
  while (engine.outputs.size() < 3) engine.Step();
  const std::vector<pid_t> processes = GrammarProcesses();
  CHECK(processes.size() >= 2);
  for (const pid_t pid : processes) kill(pid, SIGKILL);
  engine.Finish();
  CHECK(engine.errors.empty());
  for (int i = 0; i < 4; ++i) {
    CHECK(std::regex_match(engine.Text("regex" + std::to_string(i)), std::regex("[a-f]{60}")));
  }
  CheckSchemaOutput(engine.Text("schema"));
}

TEST_CASE("a process that is killed again and again ends its requests") {
  Engine engine;
  engine.AddRegex("regex", "[a-f]{90}");
  std::set<pid_t> killed;
  while (engine.core->scheduler().num_requests() > 0) {
    engine.Step();
    for (const pid_t pid : GrammarProcesses()) {
      if (killed.size() == 20 || !engine.outputs.contains("regex")) break;
      if (killed.insert(pid).second) kill(pid, SIGKILL);
    }
  }
  CHECK_THAT(engine.errors["regex"], Catch::Matchers::Contains("grammar"));
}

// The processes of grammars, without the program that forks them.
std::vector<pid_t> StopGrammars() {
  std::vector<pid_t> stopped;
  for (const pid_t pid : GrammarProcesses()) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    pid_t own = 0, parent = 0;
    std::string name, state;
    if (!(stat >> own >> name >> state >> parent) || parent == getpid()) continue;
    kill(pid, SIGSTOP);
    stopped.push_back(pid);
  }
  return stopped;
}

std::map<RequestId, std::vector<TokenId>> UndisturbedOutputs() {
  Engine engine;
  engine.AddRegex("regex", "[a-f]{60}");
  engine.core->Handle(engine.MakeRequest("free"));
  engine.Finish();
  return engine.outputs;
}

TEST_CASE("a grammar's process that stands still holds its requests alone") {
  const bool async = GENERATE(false, true);
  const auto expected = UndisturbedOutputs();
  Engine engine(async, 129, {}, true, 0, {.max_wait_s = 0.01});
  engine.AddRegex("regex", "[a-f]{60}");
  while (!engine.outputs.contains("regex")) engine.Step();
  const std::vector<pid_t> stopped = StopGrammars();
  REQUIRE_FALSE(stopped.empty());
  engine.core->Handle(engine.MakeRequest("free"));
  engine.AddRegex("later", "[a-f]{60}");  // of the same grammar
  while (!engine.reasons.contains("free")) engine.Step();
  CHECK(engine.outputs["regex"].size() < 60);
  CHECK_FALSE(engine.outputs.contains("later"));
  CHECK(engine.grammars->num_late() > 0);
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  engine.Finish();
  CHECK(engine.errors.empty());
  CHECK(engine.outputs["regex"] == expected.at("regex"));
  CHECK(engine.outputs["later"] == expected.at("regex"));
  CHECK(engine.outputs["free"] == expected.at("free"));
}

TEST_CASE("another process is made in place of one that stands still for long") {
  const auto expected = UndisturbedOutputs();
  Engine engine(false, 129, {}, true, 0, {.max_wait_s = 0.01, .reply_timeout_s = 1});
  engine.AddRegex("regex", "[a-f]{60}");
  while (!engine.outputs.contains("regex")) engine.Step();
  const std::vector<pid_t> stopped = StopGrammars();
  REQUIRE_FALSE(stopped.empty());
  engine.core->Handle(engine.MakeRequest("free"));
  engine.Finish();
  CHECK(engine.errors.empty());
  CHECK(engine.outputs == expected);
  CHECK(engine.grammars->num_abandoned() > 0);  // more than one where the next is slow, too
  // Its place in the memory of masks counts again once it has ended.
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  while (engine.grammars->num_abandoned() > 0) engine.TakeCompiled();
}

// Some steps during which no grammar's process answers.
void StepWithoutGrammars(Engine* engine) {
  const std::vector<pid_t> stopped = StopGrammars();
  for (int i = 0; i < 3 && engine->core->HasWork(); ++i) engine->Step();
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
}

// Each step that could wait for a mask does without.
TEST_CASE("masks that come too late give the outputs that others give") {
  const bool async = GENERATE(false, true);
  const int32_t num_blocks = GENERATE(129, 40);
  const int32_t num_drafts = GENERATE(0, 3);
  CAPTURE(async, num_blocks, num_drafts, kSeed);
  Engine plain(false, 129, {}, /*finds_runs=*/false);
  Engine hasty(async, num_blocks, {}, true, num_drafts, {.max_wait_s = 0});
  hasty.executor.DraftFrom(num_drafts > 0 ? &plain.outputs : nullptr);
  Dice dice(kSeed + 3);
  for (int i = 0; i < 16; ++i) {
    wire::EngineCoreRequest request = plain.MakeRequest("r" + std::to_string(i));
    request.sampling_params.structured_outputs.emplace().regex = DrawRegex(dice);
    DrawParams(dice, &request.sampling_params);
    plain.core->Handle(wire::EngineCoreRequest(request));
    plain.Finish();
    hasty.core->Handle(std::move(request));
  }
  // Whether a process answers in time is chance; one that stands still is late.
  for (int i = 0; i < 10; ++i) {
    hasty.Step();
    StepWithoutGrammars(&hasty);
  }
  hasty.Finish();
  for (const auto& [id, error] : hasty.errors) UNSCOPED_INFO(id << ": " << error);
  CHECK(hasty.errors.empty());
  CHECK(hasty.outputs == plain.outputs);
  CHECK(hasty.reasons == plain.reasons);
  CHECK(hasty.grammars->num_late() > 0);
  CHECK(hasty.grammars->num_users() == 0);
}

TEST_CASE("a request that brings outputs of an earlier run goes on in its grammar") {
  Engine engine;
  wire::EngineCoreRequest request = engine.MakeRequest("resumed");
  const std::vector<TokenId> before = *ShippedTokenizer().Encode("abc-12", false);
  request.prompt_token_ids.insert(request.prompt_token_ids.end(), before.begin(), before.end());
  request.own.num_prior_output_tokens = static_cast<int32_t>(before.size());
  request.sampling_params.structured_outputs.emplace().regex = "[a-f]{3}-[0-9]{30}";
  engine.core->Handle(std::move(request));
  engine.Finish();
  CHECK(engine.errors.empty());
  CHECK(std::regex_match(engine.Text("resumed"), std::regex("[0-9]{28}")));
}

TEST_CASE("a grammar begins after the reasoning, or with it where the engine is configured so") {
  const bool in_reasoning = GENERATE(false, true);
  CAPTURE(in_reasoning);
  Engine engine(false, 129, {.enable_in_reasoning = in_reasoning});
  wire::EngineCoreRequest request = engine.MakeRequest("thinking");
  request.reasoning_ended = false;
  request.own.reasoning.emplace().end = {300};  // what the executor draws without a mask
  request.sampling_params.structured_outputs.emplace().regex = "[0-9]{30}";
  engine.core->Handle(std::move(request));
  engine.Finish();
  CHECK(engine.errors.empty());
  const std::string mark(ShippedTokenizer().TokenBytes(300));
  CHECK(engine.Text("thinking").starts_with(mark) == !in_reasoning);
  CHECK(engine.Text("thinking").size() == 30 + (in_reasoning ? 0 : mark.size()));
}

TEST_CASE("an aborted request leaves its grammar to others") {
  Engine engine;
  engine.AddRegex("first", "[a-f]{90}");
  while (!engine.outputs.contains("first")) engine.Step();
  engine.AddRegex("second", "[a-f]{90}");
  engine.AddRegex("third", "[0-9]{90}");
  engine.core->Handle(wire::EngineInput(wire::AbortRequest{"first", "third"}));
  engine.Finish();
  CHECK(engine.Text("second").size() == 90);
  CHECK(engine.grammars->num_users() == 0);
}

TEST_CASE("a model without a tokenizer has no structured outputs, and says why") {
  SystemClock clock;
  Mailbox<GrammarCompiled> box;
  auto service =
      GrammarService::Create({.program = std::string(TANDEM_BIN_DIR) + "/tandem-grammar",
                              .model_folder = "/nowhere",
                              .vocab_size = kVocabSize,
                              .max_num_seqs = 4,
                              .max_model_len = 128,
                              .defaults = {},
                              .finds_runs = true},
                             &clock, [&](GrammarCompiled one) { box.Push(std::move(one)); });
  REQUIRE(service.ok());
  Request request({}, 7, {.grammar = true, .adapter = {}});
  request.wire.sampling_params.structured_outputs.emplace().regex = "a";
  CHECK_FALSE((*service)->Await(request));
  box.Wait();
  std::vector<GrammarCompiled> compiled;
  box.Drain(&compiled);
  const std::vector<GrammarResult> results = (*service)->Take(compiled.front());
  REQUIRE(results.size() == 1);
  CHECK(results[0].request_order == 7);
  CHECK_THAT(results[0].status.message(),
             Catch::Matchers::Contains("structured outputs are not available: ") &&
                 Catch::Matchers::Contains("/nowhere"));
}

}  // namespace
}  // namespace tandem
