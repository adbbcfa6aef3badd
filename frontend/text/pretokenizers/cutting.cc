// What the kinds that cut have in common.

#include <map>
#include <utility>

#include "common/utf8.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/pretokenizers/pretokenizer_step.h"

namespace tandem {

Status CuttingStep::Apply(Pieces* pieces) const {
  std::vector<std::string_view> out;
  out.reserve(pieces->pieces.size());
  for (const std::string_view piece : pieces->pieces) RETURN_IF_ERROR(Cut(piece, &out));
  if (out.empty() || out.front().data() != pieces->pieces.front().data()) pieces->at_start = false;
  pieces->pieces = std::move(out);
  return OkStatus();
}

StatusOr<SplitBehavior> ParseSplitBehavior(const nlohmann::json& spec, std::string_view fallback) {
  static const std::map<std::string, SplitBehavior> kBehaviors = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  ASSIGN_OR_RETURN(const std::string name, StringField(spec, "behavior", fallback));
  const auto behavior = kBehaviors.find(name);
  if (behavior == kBehaviors.end()) {
    return UnimplementedError("pre_tokenizer behavior \"" + name + "\" is not supported");
  }
  return behavior->second;
}

void PartJoiner::Add(std::string_view part, bool is_delimiter) {
  bool joins = false;
  switch (behavior_) {
    case SplitBehavior::kRemoved:
      if (!is_delimiter) out_.push_back(part);
      return;
    case SplitBehavior::kIsolated:
      out_.push_back(part);
      return;
    case SplitBehavior::kContiguous:
      joins = is_delimiter == pending_is_delimiter_;
      break;
    case SplitBehavior::kMergedWithPrevious:
      joins = is_delimiter && !pending_is_delimiter_;
      break;
    case SplitBehavior::kMergedWithNext:
      joins = !is_delimiter && pending_is_delimiter_;
      break;
  }
  if (joins && !pending_.empty()) {
    pending_ = {pending_.data(), pending_.size() + part.size()};
  } else {
    End();
    pending_ = part;
  }
  pending_is_delimiter_ = is_delimiter;
}

void PartJoiner::End() {
  if (!pending_.empty()) out_.push_back(pending_);
  pending_ = {};
}

void CutAtCharacters(std::string_view piece, bool (*is_delimiter)(char32_t), SplitBehavior behavior,
                     std::vector<std::string_view>* out) {
  PartJoiner joiner(behavior, out);
  size_t begin = 0;  // of the text since the last delimiter
  for (size_t pos = 0; pos < piece.size();) {
    const size_t start = pos;
    if (!is_delimiter(NextUtf8(piece, &pos))) continue;
    if (start > begin) joiner.Add(piece.substr(begin, start - begin), false);
    joiner.Add(piece.substr(start, pos - start), true);
    begin = pos;
  }
  if (begin < piece.size()) joiner.Add(piece.substr(begin), false);
  joiner.End();
}

}  // namespace tandem
