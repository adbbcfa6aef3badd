// Random grammars whose rules refer to each other: at every place of an output, the mask allows
// exactly the tokens that the matcher takes. TANDEM_SEED repeats a run, TANDEM_CASES sets how many
// grammars. Each has a compiler of its own, as each has a process when serving: the cache that
// xgrammar 0.2.8 keeps across grammars takes some recursive rules for those of another grammar.

#include <string>
#include <vector>

#include "common/token_mask.h"
#include "tests/support/environment.h"
#include "tests/support/masked_writer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr int kMaxTokens = 6;

std::string OneOf(Dice* dice, const std::vector<std::string>& all) {
  return all[static_cast<size_t>(dice->Roll(0, static_cast<int32_t>(all.size()) - 1))];
}

// Few characters, so that tokens of several go through many places.
std::string DrawTerminal(Dice* dice) {
  return OneOf(dice, {"\"a\"", "\"b\"", "\"ab\"", "\"ba\"", "\" \"", "\"é\"", "[ab]", "[^a]",
                      "[^中]", "[a-é]", "[中é]", "[ab]*", "[^b]*", "[a-zé]*"});
}

std::string DrawSequence(Dice* dice, int32_t num_rules, bool has_rules) {
  std::string sequence;
  for (int32_t i = dice->Roll(1, 3); i > 0; --i) {
    if (has_rules && dice->Chance(2)) {
      const int32_t rule = dice->Roll(0, num_rules - 1);
      sequence += rule == 0 ? "root" : "r" + std::to_string(rule);
      if (dice->Chance(4)) sequence += OneOf(dice, {"{1,2}", "?", "{2,}"});
    } else {
      sequence += DrawTerminal(dice);
    }
    sequence += " ";
  }
  return sequence;
}

// Each rule can end: its first choice has no rules.
std::string DrawGrammar(Dice* dice) {
  const int32_t num_rules = dice->Roll(1, 4);
  std::string text;
  for (int32_t rule = 0; rule < num_rules; ++rule) {
    text += (rule == 0 ? "root" : "r" + std::to_string(rule)) + " ::= ";
    text += DrawSequence(dice, num_rules, false);
    for (int32_t i = dice->Roll(rule == 0 ? 1 : 0, 2); i > 0; --i) {
      text += "| " + DrawSequence(dice, num_rules, true);
    }
    text += "\n";
  }
  return text;
}

std::vector<int32_t> FillMask(xgrammar::GrammarMatcher* matcher, int32_t vocab_size) {
  std::vector<int32_t> words((static_cast<size_t>(vocab_size) + 31) / 32);
  auto num_words = static_cast<int64_t>(words.size());
  DLTensor mask = {.data = words.data(),
                   .device = {kDLCPU, 0},
                   .ndim = 1,
                   .dtype = xgrammar::GetBitmaskDLType(),
                   .shape = &num_words,
                   .strides = nullptr,
                   .byte_offset = 0};
  matcher->FillNextTokenBitmask(&mask);
  return words;
}

// The tokens in which the mask and the matcher differ.
std::vector<TokenId> Contradictions(const std::vector<int32_t>& mask,
                                    const GrammarVocabulary& vocabulary,
                                    const xgrammar::GrammarMatcher& matcher) {
  std::vector<TokenId> found;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.text(id).empty()) continue;
    const bool is_taken = matcher.Fork().AcceptToken(id);
    if (is_taken != IsAllowed(mask, id)) found.push_back(id);
  }
  return found;
}

TEST_CASE("masks of random grammars allow exactly what their matchers take") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 99);
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 30));
  MaskedWriter writer(seed);
  const GrammarVocabulary& vocabulary = writer.vocabulary();
  std::vector<std::string> texts;
  for (TokenId id = 0; id < vocabulary.size(); ++id) texts.push_back(vocabulary.text(id));
  const xgrammar::TokenizerInfo tokens(texts, xgrammar::VocabType::RAW, vocabulary.size(),
                                       std::vector<int32_t>{0});
  int num_places = 0;
  for (int i = 0; i < num_cases; ++i) {
    const std::string text = DrawGrammar(&writer.dice());
    CAPTURE(seed, i, text);
    xgrammar::GrammarCompiler compiler(tokens, /*max_threads=*/1);
    const auto grammar = compiler.CompileGrammar(text);
    xgrammar::GrammarMatcher matcher(grammar);
    std::string before;
    for (int place = 0; place < kMaxTokens && !matcher.IsTerminated(); ++place, ++num_places) {
      const std::vector<int32_t> mask = FillMask(&matcher, vocabulary.size());
      INFO("after: " << before);
      for (const TokenId id : Contradictions(mask, vocabulary, matcher)) {
        FAIL_CHECK("token " << id << ": " << vocabulary.text(id));
      }
      const TokenId token = writer.Draw(mask);
      REQUIRE(token >= 0);
      REQUIRE(matcher.AcceptToken(token));
      before += vocabulary.text(token);
    }
  }
  CHECK(num_places > 2 * num_cases);
}

}  // namespace
}  // namespace tandem
