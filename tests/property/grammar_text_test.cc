// Random expressions written as a regex and as EBNF: what the masks let out matches the expression
// by an obvious matcher, and every text of the expression is let out, however it is cut into
// tokens. TANDEM_SEED repeats a run, TANDEM_CASES sets how many expressions.

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/utf8.h"
#include "tests/support/environment.h"
#include "tests/support/masked_writer.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Whole characters: plain ones, those with a meaning in a regex or in a quoted string, of two to
// four bytes, and U+FFFD.
const std::vector<std::string> kCharacters = {
    "a", "b",  "c",          "0",      "9", " ", ".", "\"", "-", "]", "^", "\\",
    "é", "中", "\U0001F600", "\uFFFD", "{", "|", "*", "\n", "'", "/", "ß", "語"};

// From one character to another, both included; `last` may be the first one.
struct Range {
  std::string first;
  std::string last;

  // UTF-8 is ordered as its code points are.
  bool Has(const std::string& character) const { return first <= character && character <= last; }
};

struct Expression {
  enum Kind { kLiteral, kClass, kSequence, kChoice, kRepeat } kind = kLiteral;
  std::vector<std::string> characters = {};  // of a literal
  std::vector<Range> ranges = {};            // of a class
  bool is_negated = false;
  std::vector<Expression> parts = {};
  int32_t least = 0;
  int32_t most = 0;  // -1: without bound

  bool ClassHas(const std::string& character) const {
    const auto has = [&](const Range& range) { return range.Has(character); };
    return std::ranges::any_of(ranges, has) != is_negated;
  }
};

const std::string& DrawCharacter(Dice* dice) {
  const auto last = static_cast<int32_t>(kCharacters.size()) - 1;
  return kCharacters[static_cast<size_t>(dice->Roll(0, last))];
}

// Some have ranges, and some contain what they do not name.
void DrawClass(Dice* dice, Expression* drawn) {
  drawn->is_negated = dice->Chance(5);
  for (int32_t i = dice->Roll(1, 4); i > 0; --i) {
    Range range = {DrawCharacter(dice), ""};
    range.last = dice->Chance(5) ? DrawCharacter(dice) : range.first;
    if (range.last < range.first) std::swap(range.first, range.last);
    drawn->ranges.push_back(range);
  }
  const auto has = [drawn](const std::string& each) { return drawn->ClassHas(each); };
  if (std::ranges::none_of(kCharacters, has)) drawn->is_negated = !drawn->is_negated;
}

Expression DrawExpression(Dice* dice, int depth) {
  Expression drawn;
  drawn.kind = static_cast<Expression::Kind>(dice->Roll(0, depth == 0 ? 1 : 4));
  switch (drawn.kind) {
    case Expression::kLiteral:
      for (int32_t i = dice->Roll(1, 4); i > 0; --i) {
        drawn.characters.push_back(DrawCharacter(dice));
      }
      break;
    case Expression::kClass:
      DrawClass(dice, &drawn);
      break;
    case Expression::kSequence:
    case Expression::kChoice:
      for (int32_t i = dice->Roll(2, 3); i > 0; --i) {
        drawn.parts.push_back(DrawExpression(dice, depth - 1));
      }
      break;
    case Expression::kRepeat:
      drawn.parts.push_back(DrawExpression(dice, depth - 1));
      drawn.least = dice->Roll(0, 2);
      drawn.most = dice->Chance(3) ? -1 : std::max(1, drawn.least + dice->Roll(0, 2));
      break;
  }
  return drawn;
}

std::string DrawText(const Expression& expression, Dice* dice) {
  std::string text;
  switch (expression.kind) {
    case Expression::kLiteral:
      for (const std::string& each : expression.characters) text += each;
      break;
    case Expression::kClass:
      do text = DrawCharacter(dice);
      while (!expression.ClassHas(text));
      break;
    case Expression::kSequence:
      for (const Expression& part : expression.parts) text += DrawText(part, dice);
      break;
    case Expression::kChoice:
      text = DrawText(expression.parts[static_cast<size_t>(
                          dice->Roll(0, static_cast<int32_t>(expression.parts.size()) - 1))],
                      dice);
      break;
    case Expression::kRepeat: {
      const int32_t most = expression.most < 0 ? expression.least + 3 : expression.most;
      for (int32_t i = dice->Roll(expression.least, most); i > 0; --i) {
        text += DrawText(expression.parts[0], dice);
      }
    }
  }
  return text;
}

// Where the expression can end that begins at one of `starts`.
std::set<size_t> Ends(const Expression& expression, const std::string& text,
                      const std::set<size_t>& starts) {
  std::set<size_t> ends = starts;
  const auto step_over = [&text](const std::string& what, const std::set<size_t>& from) {
    std::set<size_t> to;
    for (const size_t start : from) {
      if (text.compare(start, what.size(), what) == 0) to.insert(start + what.size());
    }
    return to;
  };
  switch (expression.kind) {
    case Expression::kLiteral:
      for (const std::string& each : expression.characters) ends = step_over(each, ends);
      return ends;
    case Expression::kClass:
      ends.clear();
      for (const size_t start : starts) {
        if (start == text.size()) continue;
        const Utf8Sequence character = ReadUtf8(text, start);
        if (!character.well_formed) continue;
        if (expression.ClassHas(text.substr(start, character.size))) {
          ends.insert(start + character.size);
        }
      }
      return ends;
    case Expression::kSequence:
      for (const Expression& part : expression.parts) ends = Ends(part, text, ends);
      return ends;
    case Expression::kChoice:
      ends.clear();
      for (const Expression& part : expression.parts) ends.merge(Ends(part, text, starts));
      return ends;
    case Expression::kRepeat:
      for (int32_t i = 0; i < expression.least; ++i) ends = Ends(expression.parts[0], text, ends);
      std::set<size_t> last = ends;
      for (int32_t i = expression.least; i != expression.most && !last.empty(); ++i) {
        std::set<size_t> next;
        for (const size_t end : Ends(expression.parts[0], text, last)) {
          if (ends.insert(end).second) next.insert(end);
        }
        last = next;
      }
      return ends;
  }
  return {};
}

// ---- as a regex ----

std::string Escaped(const std::string& character, std::string_view to_escape) {
  if (character == "\n") return "\\n";
  return to_escape.find(character) == std::string_view::npos ? character : "\\" + character;
}

std::string Class(const Expression& expression) {
  std::string text = expression.is_negated ? "[^" : "[";
  for (const auto& [first, last] : expression.ranges) {
    text += Escaped(first, "\\]^-");
    if (last != first) text += "-" + Escaped(last, "\\]^-");
  }
  return text + "]";
}

std::string Times(const Expression& expression) {
  if (expression.least == 0 && expression.most == 1) return "?";
  if (expression.most < 0 && expression.least < 2) return expression.least == 0 ? "*" : "+";
  const std::string least = std::to_string(expression.least);
  return "{" + least + "," + (expression.most < 0 ? "" : std::to_string(expression.most)) + "}";
}

std::string AsRegex(const Expression& expression) {
  std::string text;
  switch (expression.kind) {
    case Expression::kLiteral:
      for (const std::string& each : expression.characters) {
        text += Escaped(each, "\\.^$*+?()[]{}|/-");
      }
      return text;
    case Expression::kClass:
      return Class(expression);
    case Expression::kSequence:
    case Expression::kChoice:
      for (const Expression& part : expression.parts) {
        if (!text.empty() && expression.kind == Expression::kChoice) text += "|";
        text += AsRegex(part);
      }
      return "(" + text + ")";
    case Expression::kRepeat:
      return "(" + AsRegex(expression.parts[0]) + ")" + Times(expression);
  }
  return text;
}

// ---- as EBNF ----

// Adds the rules that it needs; every second choice is one.
std::string AsEbnf(const Expression& expression, std::vector<std::string>* rules) {
  std::string text;
  switch (expression.kind) {
    case Expression::kLiteral:
      for (const std::string& each : expression.characters) text += Escaped(each, "\\\"");
      return "\"" + text + "\"";
    case Expression::kClass:
      return Class(expression);
    case Expression::kSequence:
    case Expression::kChoice:
      for (const Expression& part : expression.parts) {
        if (!text.empty()) text += expression.kind == Expression::kChoice ? " | " : " ";
        text += AsEbnf(part, rules);
      }
      if (rules->size() % 2 == 0) return "(" + text + ")";
      rules->push_back("rule" + std::to_string(rules->size()) + " ::= " + text);
      return "rule" + std::to_string(rules->size() - 1);
    case Expression::kRepeat:
      return "(" + AsEbnf(expression.parts[0], rules) + ")" + Times(expression);
  }
  return text;
}

std::string EbnfText(const Expression& expression) {
  std::vector<std::string> rules = {""};
  rules[0] = "root ::= " + AsEbnf(expression, &rules);
  std::string text;
  for (const std::string& rule : rules) text += rule + "\n";
  return text;
}

TEST_CASE("a regex and EBNF let out the texts of their expression and no others") {
  const uint64_t seed = FromEnvironment("TANDEM_SEED", 77);
  const auto num_cases = static_cast<int>(FromEnvironment("TANDEM_CASES", 60));
  MaskedWriter writer(seed);
  int num_whole = 0, num_written = 0;
  for (int i = 0; i < num_cases; ++i) {
    const Expression expression = DrawExpression(&writer.dice(), 3);
    const GrammarSpec specs[] = {
        {GrammarKind::kRegex, JsonBlanks::kAny, AsRegex(expression)},
        {GrammarKind::kGrammar, JsonBlanks::kAny, EbnfText(expression)},
    };
    for (const GrammarSpec& spec : specs) {
      CAPTURE(seed, i, spec.text);
      const auto grammar = writer.Compile(spec);
      INFO(grammar.status().ToString());
      REQUIRE(grammar.ok());
      for (int j = 0; j < 3; ++j) {
        const std::string text = DrawText(expression, &writer.dice());
        INFO("it should be let out: " << text);
        REQUIRE(writer.Allows(*grammar, text));
      }
      ++num_written;
      const std::optional<std::string> written = writer.Write(*grammar);
      if (!written) continue;
      ++num_whole;
      INFO("it was let out: " << *written);
      REQUIRE(Ends(expression, *written, {0}).contains(written->size()));
    }
  }
  CHECK(num_whole * 2 > num_written);
}

}  // namespace
}  // namespace tandem
