#include "frontend/parsers/text_source.h"

#include <catch2/catch.hpp>

#include "frontend/parsers/parse_steps.h"

namespace tandem {
namespace {

Parse<> CountLines(TextSource& text, int* num_lines) {
  for (;;) {
    const int byte = co_await text.Peek();
    if (byte == kEndOfText) co_return;
    if (byte == '\n') ++*num_lines;
    text.Skip(1);
  }
}

TEST_CASE("TextSource: a parser goes on where it waited") {
  TextSource text;
  int num_lines = 0;
  Parse<> parser = CountLines(text, &num_lines);
  parser.Start();
  text.Append("a\nb");
  CHECK(num_lines == 1);
  text.Append("");
  text.Append("\n\n");
  CHECK(num_lines == 3);
  CHECK_FALSE(parser.done());
  text.End();
  CHECK(parser.done());
}

Parse<> CopyTags(TextSource& text, std::string* plain, int* num_tags) {
  const TextFunction add = [plain](std::string_view part) { *plain += part; };
  for (;;) {
    const int marker = co_await CopyUntil(text, AnyOf("<tag>"), add);
    if (marker == kNoMarker) co_return;
    ++*num_tags;
  }
}

TEST_CASE("TextSource: text waits only as long as it may be a marker") {
  TextSource text;
  std::string plain;
  int num_tags = 0;
  Parse<> parser = CopyTags(text, &plain, &num_tags);
  parser.Start();
  text.Append("a<ta");
  CHECK(plain == "a");
  text.Append("b");
  CHECK(plain == "a<tab");
  text.Append("<tag>c<");
  CHECK(num_tags == 1);
  CHECK(plain == "a<tabc");
  text.End();
  CHECK(plain == "a<tabc<");
}

TEST_CASE("TextSource: the stack does not grow with the text") {
  TextSource text;
  std::string plain;
  int num_tags = 0;
  Parse<> parser = CopyTags(text, &plain, &num_tags);
  parser.Start();
  constexpr int kMany = 200'000;
  std::string long_text;
  for (int i = 0; i < kMany; ++i) long_text += "<tag><";
  text.Append(long_text);
  for (int i = 0; i < 1000; ++i) text.Append("<ta");
  text.End();
  CHECK(num_tags == kMany);
}

TEST_CASE("ScanJson: nesting has a limit") {
  TextSource text;
  std::optional<size_t> end = 0;
  const auto scan = [](TextSource& source, std::optional<size_t>* out) -> Parse<> {
    *out = co_await ScanJson(source, 0);
  };
  Parse<> parser = scan(text, &end);
  parser.Start();
  text.Append(std::string(1000, '['));
  CHECK(parser.done());
  REQUIRE(end.has_value());
  CHECK(*end == 256);
}

}  // namespace
}  // namespace tandem
