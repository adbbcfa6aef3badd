// Any stream of tokens over any tokenizer: every delta is whole characters, and the deltas with
// what Flush adds are Decode() of the prompt's tail and the tokens, from the character on that the
// tail leaves unfinished. One thing differs from Decode(): a character that a run of byte tokens
// has completed stays, even if a later byte of the run makes Decode() give up the whole run.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "common/strings.h"
#include "common/utf8.h"
#include "frontend/text/detokenizer.h"
#include "frontend/text/stop_strings.h"
#include "frontend/text/tokenizer.h"
#include "tests/support/files/golden_folders.h"
#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr const char* kReplacement = "\uFFFD";
// An added token that no golden has: written between tokens it ends a run of bytes.
constexpr const char* kMark = "\u2020cut\u2020";

struct Subject {
  std::string folder;
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenId mark = -1;
  std::vector<TokenId> byte_tokens;  // <0xNN>, or those of one byte
  std::vector<TokenId> added_tokens;
  bool falls_back = false;  // a run of byte tokens that is not UTF-8 is one U+FFFD for each
  bool resumes = false;     // SentencePiece's own: only for each byte that is part of no character
};

std::string ReadAll(const std::string& path) {
  std::ifstream in(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<char> ByteOf(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view token = tokenizer.IdToToken(id).value_or("");
  if (token.size() != 6 || !token.starts_with("<0x")) return std::nullopt;
  const auto byte = HexDecode(token.substr(3, 2));
  return byte ? std::optional<char>((*byte)[0]) : std::nullopt;
}

// The tokenizer of a folder with tokenizer.json and the mark as an added token more; size: without
// the mark.
std::shared_ptr<const Tokenizer> ParseMarked(const std::string& folder, TokenId* size) {
  nlohmann::json file = nlohmann::json::parse(ReadAll(folder + "/tokenizer.json"));
  *size = Tokenizer::Parse(file.dump(), "").value()->vocab_size();
  file["added_tokens"].push_back(
      {{"id", *size}, {"content", kMark}, {"normalized", false}, {"special", false}});
  return Tokenizer::Parse(file.dump(), "").value();
}

// The same of a folder with another program's file, whose added tokens are in the configuration.
std::shared_ptr<const Tokenizer> LoadMarked(const std::string& folder, TokenId* size) {
  *size = Tokenizer::Load(folder).value()->vocab_size();
  const TempFolder copy;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    copy.Write(file.path().filename().string(), ReadAll(file.path()));
  }
  const std::string text = copy.Read("tokenizer_config.json");
  auto config = nlohmann::json::parse(text.empty() ? "{}" : text);
  config["added_tokens_decoder"][std::to_string(*size)] = {
      {"content", kMark}, {"normalized", false}, {"special", false}};
  copy.Write("tokenizer_config.json", config.dump());
  return Tokenizer::Load(copy.path()).value();
}

Subject Load(const std::string& folder) {
  Subject subject;
  subject.folder = folder;
  const bool has_json = std::filesystem::exists(folder + "/tokenizer.json");
  subject.tokenizer = (has_json ? ParseMarked : LoadMarked)(folder, &subject.mark);
  REQUIRE(subject.tokenizer->TokenToId(kMark) == subject.mark);
  for (TokenId id = 0; id < subject.mark; ++id) {
    if (subject.tokenizer->IsAdded(id)) subject.added_tokens.push_back(id);
    if (ByteOf(*subject.tokenizer, id)) subject.falls_back = true;
    if (subject.tokenizer->TokenBytes(id).size() == 1) subject.byte_tokens.push_back(id);
  }
  subject.resumes = subject.falls_back && !has_json;
  return subject;
}

const std::vector<Subject>& Subjects() {
  static const std::vector<Subject> subjects = [] {
    std::vector<Subject> loaded;
    for (const auto& folder : GoldenFolders(TANDEM_GOLDEN_DIR, "tokenizers", "goldens.json")) {
      loaded.push_back(Load(folder));
    }
    return loaded;
  }();
  return subjects;
}

// Leaves the start of a character, which later bytes may complete.
void DropFinished(std::string* run) {
  while (!run->empty()) {
    const Utf8Sequence sequence = ReadUtf8(*run, 0);
    if (sequence.truncated) return;
    run->erase(0, sequence.well_formed ? sequence.size : 1);
  }
}

// ids with a mark after each character that a run of byte tokens completes. *unfinished: how many
// U+FFFD at the end of their text may still become a character.
std::vector<TokenId> Marked(const Subject& subject, const std::vector<TokenId>& ids, bool skip,
                            size_t* unfinished) {
  std::vector<TokenId> marked;
  std::string run;  // bytes after the last mark
  for (const TokenId id : ids) {
    const Tokenizer& tokenizer = *subject.tokenizer;
    marked.push_back(id);
    if (!tokenizer.IdToToken(id) || (skip && tokenizer.IsSpecial(id))) continue;
    if (!subject.falls_back) {
      run += tokenizer.TokenBytes(id);
      continue;
    }
    const auto byte = ByteOf(tokenizer, id);
    if (!byte) {
      run.clear();
      continue;
    }
    run += *byte;
    if (subject.resumes) {
      DropFinished(&run);
      continue;
    }
    if (FindInvalidUtf8(run) != std::string::npos) continue;
    marked.push_back(subject.mark);
    run.clear();
  }
  *unfinished = 0;
  for (size_t pos = 0; pos < run.size();) {
    const Utf8Sequence sequence = ReadUtf8(run, pos);
    if (sequence.truncated) *unfinished = subject.falls_back ? sequence.size : 1;
    if (subject.falls_back && !sequence.well_formed && !sequence.truncated) break;
    pos += sequence.size;
  }
  return marked;
}

std::string Without(std::string text, std::string_view mark) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.erase(at, mark.size());
  }
  return text;
}

// The whole that deltas and Flush must add up to.
std::string Whole(const Subject& subject, const std::vector<TokenId>& tail,
                  const std::vector<TokenId>& ids, bool skip) {
  size_t unfinished = 0;
  const auto marked_tail = Marked(subject, tail, skip, &unfinished);
  std::string before = Without(subject.tokenizer->Decode(marked_tail, skip), kMark);
  for (size_t i = 0; i < unfinished; ++i) {
    REQUIRE(before.ends_with(kReplacement));
    before.resize(before.size() - 3);
  }
  std::vector<TokenId> all = tail;
  all.insert(all.end(), ids.begin(), ids.end());
  const auto marked = Marked(subject, all, skip, &unfinished);
  const std::string whole = Without(subject.tokenizer->Decode(marked, skip), kMark);
  REQUIRE(whole.starts_with(before));
  return whole.substr(before.size());
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  size_t Below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }
  TokenId OneOf(const std::vector<TokenId>& ids) {
    return ids.empty() ? 0 : ids[Below(ids.size())];
  }

  // Bytes come in bursts, half of them the bytes of characters, U+FFFD among them.
  std::vector<TokenId> Ids(const Subject& subject, size_t count) {
    std::vector<TokenId> ids;
    while (ids.size() < count) {
      switch (Below(5)) {
        case 0: {  // any token but the mark, and ids without one
          const auto id = static_cast<TokenId>(Below(static_cast<size_t>(subject.mark) + 3));
          ids.push_back(id == subject.mark ? id + 1 : id);
          break;
        }
        case 1:
          ids.push_back(OneOf(subject.added_tokens));
          break;
        case 2:
          for (size_t n = Below(6); n > 0; --n) ids.push_back(OneOf(subject.byte_tokens));
          break;
        default:
          AppendBytes(subject, &ids);
      }
    }
    ids.resize(count);
    return ids;
  }

 private:
  // The bytes of a character by their own tokens, sometimes not all of them.
  void AppendBytes(const Subject& subject, std::vector<TokenId>* ids) {
    static const std::vector<std::string> kCharacters = {"é", "你", "👩", "\uFFFD", "a", " "};
    const std::string& bytes = kCharacters[Below(kCharacters.size())];
    const size_t end = Below(4) == 0 ? Below(bytes.size()) + 1 : bytes.size();
    for (const char byte : bytes.substr(0, end)) {
      for (const TokenId id : subject.byte_tokens) {
        if (subject.tokenizer->TokenBytes(id)[0] != byte) continue;
        ids->push_back(id);
        break;
      }
    }
  }

  std::mt19937 random_;
};

std::string Stream(const Tokenizer& tokenizer, DetokenizerOptions options,
                   const std::vector<TokenId>& tail, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, options, tail);
  std::string all;
  size_t num_broken = 0;
  std::string delta;
  for (size_t i = 0; i <= ids.size(); ++i) {
    delta.clear();
    i < ids.size() ? detokenizer.Append(ids[i], &delta) : detokenizer.Flush(&delta);
    num_broken += FindInvalidUtf8(delta) != std::string::npos ? 1 : 0;
    all += delta;
  }
  CHECK(num_broken == 0);
  return all;
}

TEST_CASE("Detokenizer deltas are whole characters that add up to the decoded text") {
  const uint32_t seed = GENERATE(range(1u, 101u));
  for (const Subject& subject : Subjects()) {
    CAPTURE(seed, subject.folder);
    Draw draw(seed);
    DetokenizerOptions options;
    options.skip_special_tokens = draw.Below(2) == 0;
    const auto tail = draw.Ids(subject, draw.Below(17));
    const auto ids = draw.Ids(subject, draw.Below(200));
    CAPTURE(tail, ids, options.skip_special_tokens);
    CHECK(Stream(*subject.tokenizer, options, tail, ids) ==
          Whole(subject, tail, ids, options.skip_special_tokens));
  }
}

TEST_CASE("Detokenizer deltas are whole characters when added tokens are written without spaces") {
  const uint32_t seed = GENERATE(range(1u, 21u));
  for (const Subject& subject : Subjects()) {
    CAPTURE(seed, subject.folder);
    Draw draw(seed);
    DetokenizerOptions options;
    options.skip_special_tokens = draw.Below(2) == 0;
    options.spaces_between_special_tokens = false;
    Stream(*subject.tokenizer, options, draw.Ids(subject, draw.Below(17)), draw.Ids(subject, 100));
  }
}

TEST_CASE("Detokenizer holds a bounded number of bytes of any stream") {
  for (const Subject& subject : Subjects()) {
    CAPTURE(subject.folder);
    std::vector<TokenId> ids = subject.byte_tokens;
    std::erase_if(ids, [&](TokenId id) {
      return static_cast<unsigned char>(subject.tokenizer->TokenBytes(id)[0]) < 0x80;
    });
    if (ids.empty()) continue;
    for (const TokenId id : {ids.front(), ids[ids.size() / 2], ids.back()}) {
      Detokenizer detokenizer(*subject.tokenizer, {}, {});
      std::string text;
      for (int i = 0; i < 1000; ++i) detokenizer.Append(id, &text);
      CHECK(text.size() + Detokenizer::kMaxHeldBytes + 12 >= 1000);
      CHECK(FindInvalidUtf8(text) == std::string::npos);
    }
  }
}

TEST_CASE("Detokenizer gives back what was encoded, character by character") {
  for (const char* name : {"gpt2", "llama2", "gemma"}) {
    CAPTURE(name);
    const auto tokenizer =
        Tokenizer::Load(std::string(TANDEM_GOLDEN_DIR "/tokenizers/") + name).value();
    const std::string text = "Grüße, 你好 👩‍👩‍👧 \xEF\xBF\xBD ok\r\n\t☕";
    const auto ids = tokenizer->Encode(text, false).value();
    CHECK(Stream(*tokenizer, {}, {}, ids) == text);
  }
}

TEST_CASE("Detokenizer gives back a megabyte of one letter") {
  for (const char* name : {"llama2", "llama3"}) {
    CAPTURE(name);
    const auto tokenizer =
        Tokenizer::Load(std::string(TANDEM_GOLDEN_DIR "/tokenizers/") + name).value();
    const std::string text(1 << 20, 'a');
    const auto ids = tokenizer->Encode(text, false).value();
    CHECK((Stream(*tokenizer, {}, {}, ids) == text));
  }
}

// Stop strings see deltas: what they let through is the text up to the first stop string.
TEST_CASE("Stop strings cut a stream of tokens where they cut its text") {
  const uint32_t seed = GENERATE(range(1u, 41u));
  for (const Subject& subject : Subjects()) {
    CAPTURE(seed, subject.folder);
    Draw draw(seed);
    const auto ids = draw.Ids(subject, 120);
    const std::string text = Stream(*subject.tokenizer, {}, {}, ids);
    // Stop strings of whole characters out of the text itself, U+FFFD among them.
    std::vector<std::string> stops;
    std::vector<size_t> starts;
    for (size_t pos = 0; pos < text.size(); NextUtf8(text, &pos)) starts.push_back(pos);
    while (stops.size() < 3 && starts.size() > 4) {
      const size_t first = draw.Below(starts.size() - 4);
      const size_t begin = starts[first];
      stops.push_back(text.substr(begin, starts[first + 1 + draw.Below(3)] - begin));
    }
    size_t end = std::string::npos;  // of the stop string that is complete first
    size_t begin = text.size();
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at + stop.size() < end) {
        end = at + stop.size();
        begin = at;
      }
    }
    StopStrings stop_strings(stops, false);
    Detokenizer detokenizer(*subject.tokenizer, {}, {});
    std::string shown;
    bool stopped = false;
    for (size_t i = 0; i <= ids.size() && !stopped; ++i) {
      std::string delta;
      i < ids.size() ? detokenizer.Append(ids[i], &delta) : detokenizer.Flush(&delta);
      std::string released;
      stopped = stop_strings.Append(delta, true, &released).has_value();
      REQUIRE(FindInvalidUtf8(released) == std::string::npos);
      shown += released;
    }
    if (!stopped) stop_strings.Flush(&shown);
    CAPTURE(text, stops);
    CHECK(stopped == !stops.empty());
    if (stops.empty() || std::count_if(stops.begin(), stops.end(), [&](const auto& stop) {
                           return text.find(stop) + stop.size() == end;
                         }) == 1) {
      CHECK(shown == text.substr(0, begin));
    }
  }
}

}  // namespace
}  // namespace tandem
