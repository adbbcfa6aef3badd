#pragma once

// What the engine core and tandem-grammar say to each other, over packets (packets.h).
//
// tandem-grammar loads the vocabulary once and then forks a process for each grammar
// (forking_program.h), whose job's input is the packed spec. Of each such process the engine holds
// the socket; the masks are rows of memory that all share (mask_rows.h). Once a grammar is compiled
//   engine → process  the steps of its matchers
//   process → engine  for each packet kDone, then a MatcherOutcome for each step; or kError
// A matcher is the state of one request; it begins with the first step that names it.
// Pure; any thread. Malformed packets are the Status or nullopt.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

// What a client can do about a grammar that takes too long.
constexpr char kHowToShorten[] =
    "; fewer optional properties, alternatives and repetitions make it faster";

enum class GrammarKind : uint8_t {
  kJsonSchema,     // text: the schema
  kRegex,          // the whole output matches
  kGrammar,        // EBNF in xgrammar's form, or Lark
  kStructuralTag,  // text: JSON, in vLLM's older or in xgrammar's form
};

// Between the tokens of JSON.
enum class JsonBlanks : uint8_t {
  kAny,     // whatever JSON allows
  kPython,  // ", " and ": ", as json.dumps writes
  kNone,
  kOne,  // at most one at a time
};

struct GrammarSpec {
  GrammarKind kind = GrammarKind::kJsonSchema;
  JsonBlanks blanks = JsonBlanks::kAny;
  std::string text;
};

// The bytes are also the grammar's identity.
std::string PackGrammarSpec(const GrammarSpec& spec);
StatusOr<GrammarSpec> UnpackGrammarSpec(std::string_view packed);

// ---- steps ----

constexpr int32_t kNoMaskRow = -1;      // takes in the tokens, nothing more
constexpr int32_t kClosesMatcher = -2;  // its request has ended
// Of a step; with more tokens to take in there are several.
constexpr size_t kMaxStepTokens = 8192;

struct MatcherStep {
  int64_t matcher_id = 0;
  int32_t mask_row = kNoMaskRow;  // where the mask of its next token is written, and the run
  // Special tokens, which do not show in the text, may stand for the text that spells them.
  bool allows_special_tokens = false;
  std::span<const TokenId> tokens;  // sampled since its last step
  int32_t max_run = 0;              // tokens of a run that are of use; below 2: none is looked for
  // Guesses of what follows the tokens: the mask of the place after each goes to the rows after
  // mask_row, up to the first guess that is refused. The matcher stays where it is.
  std::span<const TokenId> drafts = {};
};

// The words of a step in a packet; a packet may hold many steps.
size_t NumStepWords(const MatcherStep& step);
void AppendStep(const MatcherStep& step, std::vector<int32_t>* packet);
// Takes the first step off the packet; its tokens are views into it.
std::optional<MatcherStep> TakeStep(std::span<const int32_t>* packet);

enum class MatcherOutcome : char {
  kOk = 'o',
  kRefused = 'r',  // a token that the grammar does not allow; the matcher takes no more
};

}  // namespace tandem
