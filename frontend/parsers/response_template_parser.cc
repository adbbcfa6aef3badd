// The format that a checkpoint describes itself (response_template.h): a field lasts from its
// opening mark to its closing one, and within a field no other mark counts. Text is passed on as it
// comes, but for what may be part of a mark. A call is passed on when its part ends; one that
// cannot be read, or is not whole, is dropped, as in vLLM.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "common/utf8.h"
#include "frontend/parsers/parse_steps.h"
#include "frontend/parsers/response_template.h"
#include "frontend/parsers/tool_formats.h"

namespace tandem {
namespace {

using Field = ResponseTemplate::Field;
using Part = ResponseTemplate::Part;
using Match = PartialRegex::Match;

class ResponseReader {
 public:
  explicit ResponseReader(const ToolParserInput& in)
      : in_(in), template_(*in.response_template), outside_(template_.outside()) {
    current_ = outside_;
    AppendLossyUtf8(in.prefix, &text_);
    Process(/*ended=*/false);
    prefix_end_ = text_.size();
    Report();
  }

  void Add(std::string_view piece) {
    bytes_ += piece;
    // A character that is cut waits for its rest.
    size_t end = 0;
    while (end < bytes_.size()) {
      const Utf8Sequence next = ReadUtf8(bytes_, end);
      if (next.truncated) break;
      end += next.size;
    }
    AppendLossyUtf8(std::string_view(bytes_).substr(0, end), &text_);
    bytes_.erase(0, end);
    // What waits for a long match is looked at again when it has grown by a part of itself, so that
    // all looks together are linear.
    constexpr size_t kPart = 16;
    if (text_.size() - position_ < next_look_) return;
    Process(/*ended=*/false);
    const size_t waiting = text_.size() - position_;
    next_look_ = waiting + waiting / kPart + 1;
    Report();
  }

  void End() {
    AppendLossyUtf8(bytes_, &text_);
    bytes_.clear();
    if (text_.size() == prefix_end_) return;
    text_ += RestOfMark();
    Process(/*ended=*/true);
    Report();
  }

 private:
  struct Found {
    Match match;
    const Field* field = nullptr;  // of the mark; null: there is none
    bool opens = false;
  };

  bool is_outside() const { return current_ == outside_; }
  void Report() {
    if (in_.in_reasoning == nullptr) return;
    *in_.in_reasoning =
        in_.reads_reasoning && current_ != nullptr && current_->part == Part::kThinking;
  }

  // The mark that comes next and will stay so. *hold: nothing is known of what begins there.
  Found Next(bool ended, size_t* hold) {
    Found best;
    *hold = text_.size();
    const auto look = [&](const Field& field, bool opens) {
      const auto& pattern = opens ? field.open.pattern : field.close.pattern;
      if (!pattern) return;
      const Match match = pattern->Search(text_, position_, ended, &budget_);
      if (match.kind == Match::Kind::kTooLong) gave_up_ = true;
      if (match.kind == Match::Kind::kPending) *hold = std::min(*hold, match.begin);
      if (match.kind != Match::Kind::kFound) return;
      // What stands outside goes on after it, so an empty end of it is none.
      if (!opens && is_outside() && match.begin == match.end) return;
      const auto size = [](const Match& each) { return each.end - each.begin; };
      const bool is_better = best.field == nullptr || match.begin < best.match.begin ||
                             (match.begin == best.match.begin &&
                              (size(match) > size(best.match) ||
                               (size(match) == size(best.match) && opens && !best.opens)));
      if (is_better) best = {match, &field, opens};
    };
    if (!is_outside()) {
      look(*current_, false);
    } else {
      for (const Field& field : template_.fields()) look(field, true);
      if (outside_ != nullptr) look(*outside_, false);
    }
    if (best.field != nullptr && best.match.begin >= *hold) best.field = nullptr;
    return best;
  }

  void Process(bool ended) {
    while (!gave_up_) {
      size_t hold = 0;
      const Found found = Next(ended, &hold);
      if (gave_up_) break;
      if (found.field == nullptr) {
        if (ended) break;
        Show(hold);
        position_ = std::max(position_, hold);
        return;
      }
      // Marks that are empty must not come for ever at one place.
      constexpr int kMostAtOnePlace = 8;
      num_here_ = found.match.end == mark_end_ ? num_here_ + 1 : 0;
      gave_up_ = num_here_ > kMostAtOnePlace;
      Show(found.match.begin);
      position_ = mark_end_ = found.match.end;
      if (found.opens) {
        Open(found);
      } else {
        Close(found.match.begin, found.match.end);
      }
    }
    Show(text_.size());
    position_ = text_.size();
    if (ended) Close(text_.size(), text_.size());
  }

  void Open(const Found& found) {
    current_ = found.field;
    groups_ = found.match.groups;
    if (current_->part == Part::kCalls && !in_.reads_calls) {
      ShowMark(found.match.begin, found.match.end);
    }
    part_begin_ = shown_ = found.match.end;
  }

  void Close(size_t begin, size_t end) {
    const bool is_nothing = is_outside() && begin == part_begin_;
    if (current_ != nullptr && current_->part == Part::kCalls && !is_nothing && !is_prefix()) {
      if (in_.reads_calls) {
        AddCalls(std::string_view(text_).substr(part_begin_, begin - part_begin_));
      } else {
        ShowMark(begin, end);
      }
    }
    current_ = outside_;
    groups_.clear();
    part_begin_ = shown_ = end;
  }

  void AddCalls(std::string_view text) {
    const auto calls = ResponseTemplate::ReadCalls(*current_, text, groups_, in_.tools, &budget_);
    for (const auto& call : calls) in_.sink.AddCall(call.name, call.arguments);
  }

  // The text of the current part up to `end`, but for what the prompt has of it.
  void Show(size_t end) {
    if (is_prefix()) return;
    const size_t begin = std::max(shown_, prefix_end_);
    if (end <= begin) return;
    const std::string_view text = std::string_view(text_).substr(begin, end - begin);
    shown_ = end;
    if (current_ == nullptr) return;
    switch (current_->part) {
      case Part::kThinking:
        if (in_.reads_reasoning) {
          in_.sink.AddReasoning(text);
        } else {
          in_.sink.AddContent(text);
        }
        break;
      case Part::kContent:
        in_.sink.AddContent(text);
        break;
      case Part::kCalls:
        if (!in_.reads_calls) in_.sink.AddContent(text);
        break;
    }
  }

  void ShowMark(size_t begin, size_t end) {
    if (is_prefix()) return;
    begin = std::max(begin, prefix_end_);
    if (begin < end) in_.sink.AddContent(std::string_view(text_).substr(begin, end - begin));
  }

  bool is_prefix() const { return prefix_end_ == kReadingPrefix; }

  // A model stops before the mark that begins the next message; where a closing mark ends with that
  // one, its rest.
  std::string RestOfMark() const {
    if (current_ == nullptr) return {};
    const std::string_view part = std::string_view(text_).substr(part_begin_);
    for (const std::string& word : current_->close.words) {
      for (const std::string& start : template_.start_words()) {
        if (word.size() <= start.size() || !word.ends_with(start)) continue;
        for (size_t cut = word.size() - 1; cut >= word.size() - start.size(); --cut) {
          if (part.ends_with(word.substr(0, cut))) return word.substr(cut);
        }
      }
    }
    return {};
  }

  static constexpr size_t kReadingPrefix = SIZE_MAX;

  const ToolParserInput in_;
  const ResponseTemplate& template_;
  const Field* const outside_;
  const Field* current_;                                     // null: outside, where nothing is kept
  std::vector<std::pair<std::string, std::string>> groups_;  // of the mark that opened it
  std::string bytes_;                                        // of a character that is not whole
  std::string text_;                                         // of the message so far
  size_t prefix_end_ = kReadingPrefix;                       // where the prompt's part of it ends
  size_t position_ = 0;                                      // no mark begins before this
  size_t mark_end_ = SIZE_MAX;                               // of the last one
  size_t part_begin_ = 0;                                    // of the current field
  size_t shown_ = 0;                                         // what comes before is passed on
  size_t next_look_ = 0;  // the bytes after position_ that a look is worth
  int num_here_ = 0;      // marks in a row that moved nothing
  bool gave_up_ = false;  // the rest is text of the current field
  RegexBudget budget_;
};

}  // namespace

Parse<> ParseResponseTemplate(ToolParserInput in) {
  if (in.response_template == nullptr) {
    co_await CopyRest(in.text, [&in](std::string_view part) { in.sink.AddContent(part); });
    co_return;
  }
  ResponseReader reader(in);
  for (;;) {
    const int byte = co_await in.text.Peek();
    if (byte == kEndOfText) break;
    const std::string_view piece = in.text.pending();
    reader.Add(piece);
    in.text.Skip(piece.size());
  }
  reader.End();
}

}  // namespace tandem
