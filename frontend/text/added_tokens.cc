#include "frontend/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "common/utf8.h"
#include "frontend/text/characters.h"

namespace tandem {
namespace {

// Start of the last character before pos. REQUIRES pos > 0.
size_t PreviousChar(std::string_view text, size_t pos) {
  do {
    --pos;
  } while (pos > 0 && IsUtf8Continuation(text[pos]));
  return pos;
}

bool WordEndsAt(std::string_view text, size_t pos) {
  if (pos == 0) return false;
  size_t start = PreviousChar(text, pos);
  return IsWordChar(NextUtf8(text, &start));
}

bool WordStartsAt(std::string_view text, size_t pos) {
  return pos < text.size() && IsWordChar(NextUtf8(text, &pos));
}

size_t SkipSpacesLeft(std::string_view text, size_t pos) {
  while (pos > 0) {
    const size_t previous = PreviousChar(text, pos);
    size_t next = previous;
    if (!IsWhiteSpace(NextUtf8(text, &next))) break;
    pos = previous;
  }
  return pos;
}

size_t SkipSpacesRight(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    size_t next = pos;
    if (!IsWhiteSpace(NextUtf8(text, &next))) break;
    pos = next;
  }
  return pos;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    if (content.empty()) continue;
    starts_[static_cast<unsigned char>(content[0])] = true;
    uint64_t node = 0;
    for (const char byte : content) {
      const uint64_t key = node << 8 | static_cast<unsigned char>(byte);
      const auto [it, added] = children_.try_emplace(key, token_of_node_.size());
      if (added) token_of_node_.push_back(-1);
      node = it->second;
    }
    if (token_of_node_[node] < 0) token_of_node_[node] = static_cast<int32_t>(i);
  }
}

int32_t AddedTokenFinder::LongestAt(std::string_view text, size_t pos) const {
  int32_t longest = -1;
  uint64_t node = 0;
  for (; pos < text.size(); ++pos) {
    const auto it = children_.find(node << 8 | static_cast<unsigned char>(text[pos]));
    if (it == children_.end()) break;
    node = it->second;
    if (token_of_node_[node] >= 0) longest = token_of_node_[node];
  }
  return longest;
}

void AddedTokenFinder::Split(std::string_view text, std::vector<Part>* parts) const {
  size_t done = 0;  // everything before it is in *parts
  for (size_t pos = 0; pos < text.size();) {
    if (!starts_[static_cast<unsigned char>(text[pos])]) {
      ++pos;
      continue;
    }
    const int32_t index = LongestAt(text, pos);
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = pos;
    size_t end = pos + token.content.size();
    pos = end;
    if (token.single_word && (WordEndsAt(text, begin) || WordStartsAt(text, end))) continue;
    if (token.lstrip) begin = std::max(SkipSpacesLeft(text, begin), done);
    if (token.rstrip) end = SkipSpacesRight(text, end);
    if (begin > done) parts->push_back({-1, text.substr(done, begin - done)});
    // A token of white space counts even inside what the token before it took for itself.
    parts->push_back({token.id, text.substr(begin, std::max(begin, end) - begin)});
    done = end;
  }
  if (done < text.size()) parts->push_back({-1, text.substr(done)});
}

}  // namespace tandem
