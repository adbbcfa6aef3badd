#include "grammar/compiler/grammar_worker.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/forking/crash_report.h"
#include "common/forking/job_reply.h"
#include "common/packets.h"
#include "grammar/compiler/token_matcher.h"
#include "grammar/protocol.h"

namespace tandem {
namespace {

// What a grammar is mostly made of: names of its own around common rules.
constexpr char kRehearsedSchema[] = R"({"type": "object", "properties": {
  "rehearsed_text": {"type": "string"}, "rehearsed_count": {"type": "integer", "minimum": 0, "maximum": 130},
  "rehearsed_list": {"type": "array", "items": {"enum": ["rehearsed_one", "rehearsed_two"]}},
  "rehearsed_object": {"type": "object", "properties": {"rehearsed_part": {"type": ["integer", "null"]}},
                       "required": ["rehearsed_part"]}},
  "required": ["rehearsed_text", "rehearsed_list"]})";

class GrammarWorker {
 public:
  GrammarWorker(const xgrammar::CompiledGrammar& grammar, const GrammarVocabulary* vocabulary,
                const MaskRows& masks)
      : grammar_(grammar), vocabulary_(vocabulary), masks_(masks) {}

  // Takes in a packet of steps and returns its reply; nullopt: it is malformed.
  std::optional<std::string> Handle(std::string_view packet) {
    words_.resize(packet.size() / sizeof(int32_t));
    std::memcpy(words_.data(), packet.data(), words_.size() * sizeof(int32_t));
    std::string reply(1, static_cast<char>(ReplyKind::kDone));
    std::span<const int32_t> left = words_;
    while (!left.empty()) {
      const std::optional<MatcherStep> step = TakeStep(&left);
      if (!step) return std::nullopt;
      reply += static_cast<char>(Run(*step));
    }
    return reply;
  }

 private:
  MatcherOutcome Run(const MatcherStep& step) {
    if (step.mask_row == kClosesMatcher) {
      matchers_.erase(step.matcher_id);
      return MatcherOutcome::kOk;
    }
    TokenMatcher& matcher =
        matchers_.try_emplace(step.matcher_id, grammar_, vocabulary_).first->second;
    for (const TokenId token : step.tokens) {
      if (!matcher.Accept(token)) return MatcherOutcome::kRefused;
    }
    const auto row = static_cast<size_t>(step.mask_row);
    if (step.mask_row < 0 || row >= masks_.count()) return MatcherOutcome::kOk;
    const std::span<int32_t> mask = masks_.mask(row), run = masks_.run(row);
    matcher.FillMask(step.allows_special_tokens, mask);
    run[0] = 0;
    if (step.max_run >= 2) {
      const size_t most = std::min(static_cast<size_t>(step.max_run), kMaxRunTokens);
      const size_t size = matcher.FindRun(step.allows_special_tokens, mask, run.subspan(1, most));
      run[0] = static_cast<int32_t>(size);
    }
    if (step.drafts.size() < masks_.count() - row) {
      matcher.FillMasksAfter(step.allows_special_tokens, step.drafts, masks_, row);
    }
    return MatcherOutcome::kOk;
  }

  const xgrammar::CompiledGrammar& grammar_;
  const GrammarVocabulary* vocabulary_;
  MaskRows masks_;
  std::unordered_map<int64_t, TokenMatcher> matchers_;
  std::vector<int32_t> words_;  // of the packet
};

}  // namespace

void RehearseGrammar(GrammarVocabulary* vocabulary) {
  const StatusOr<xgrammar::CompiledGrammar> grammar =
      CompileGrammar({.text = kRehearsedSchema}, vocabulary);
  CHECK(grammar.ok()) << grammar.status().ToString();
  std::vector<int32_t> mask((static_cast<size_t>(vocabulary->size()) + 31) / 32);
  TokenMatcher(*grammar, vocabulary).FillMask(false, mask);
}

int RunGrammarWorker(GrammarVocabulary* vocabulary, const MaskRows& masks, UniqueFd socket,
                     UniqueFd spec, const GrammarLimits& limits) {
  CrashReport::Install(socket.get(), "the grammar", "the grammar compiler");
  CrashReport::LimitMemory(limits.memory_bytes);
  CrashReport::LimitCpuTime(limits.compile_cpu_ms, kHowToShorten);
  const StatusOr<std::string> packed = ReadMemoryFile(spec.get());
  if (!packed.ok()) return FailWith(socket.get(), packed.status());
  const StatusOr<GrammarSpec> read = UnpackGrammarSpec(*packed);
  if (!read.ok()) return FailWith(socket.get(), read.status());
  const StatusOr<xgrammar::CompiledGrammar> grammar = CompileGrammar(*read, vocabulary);
  if (!grammar.ok()) return FailWith(socket.get(), grammar.status());
  CrashReport::WatchSteps(limits.step_cpu_ms);

  GrammarWorker worker(*grammar, vocabulary, masks);
  std::optional<std::string> reply(std::string(1, static_cast<char>(ReplyKind::kDone)));
  while (reply && SendPacket(socket.get(), *reply).ok()) {
    const StatusOr<Packet> packet = ReceivePacket(socket.get());
    if (!packet.ok()) return 0;  // the engine has no more use for it, or is gone
    CrashReport::BeginStep();
    reply = worker.Handle(packet->bytes);
    CrashReport::EndStep();
  }
  return reply ? 0 : FailWith(socket.get(), DataLossError("a malformed packet of steps"));
}

}  // namespace tandem
