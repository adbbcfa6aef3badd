#include "frontend/processing/torch_tensor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "frontend/processing/zip_entries.h"

namespace tandem {
namespace {

// ---- The pickle ----

// Anything that a description is made of; what has no use here is kOther.
struct Item {
  enum class Kind { kMark, kInt, kText, kGlobal, kTuple, kStorage, kTensor, kOther };
  Kind kind = Kind::kOther;
  int64_t number = 0;
  std::string text;
  std::vector<Item> parts;
  int depth = 0;
  size_t num_items = 1;  // itself and all in it
};

// Runs the instructions of protocols 2 to 5 that describe a tensor.
class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_(bytes) {}

  // The item that is left at the end; nullopt for anything else than a description.
  std::optional<Item> Run() {
    while (ok_ && !stopped_) Step(Take(1));
    if (!ok_ || stack_.size() != 1) return std::nullopt;
    return std::move(stack_.back());
  }

 private:
  // On the stack, in the memo, and in one item: copies of remembered items could grow without end.
  static constexpr size_t kMaxItems = 256;
  static constexpr int kMaxDepth = 8;
  static constexpr size_t kMaxTextBytes = 256;  // of a name; an item has a copy of each in it

  std::string_view Take(size_t size) {
    if (size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::string_view TakeLine() {
    const size_t end = bytes_.find('\n');
    if (end == std::string_view::npos) {
      ok_ = false;
      return {};
    }
    const std::string_view line = Take(end);
    Take(1);
    return line;
  }
  std::string TakeText(size_t size) {
    ok_ = ok_ && size <= kMaxTextBytes;
    return ok_ ? std::string(Take(size)) : std::string();
  }
  int64_t TakeInt(size_t size) {
    const std::string_view bytes = Take(size);
    uint64_t value = 0;
    for (size_t i = bytes.size(); i > 0; --i) {
      value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
    }
    return static_cast<int64_t>(value);
  }

  void Push(Item item) {
    item.num_items = 1;
    for (const Item& part : item.parts) {
      item.depth = std::max(item.depth, part.depth + 1);
      item.num_items += part.num_items;
    }
    ok_ =
        ok_ && stack_.size() < kMaxItems && item.depth <= kMaxDepth && item.num_items <= kMaxItems;
    if (ok_) stack_.push_back(std::move(item));
  }
  void PushKind(Item::Kind kind, std::string text = {}) {
    Item item;
    item.kind = kind;
    item.text = std::move(text);
    Push(std::move(item));
  }
  void PushInt(int64_t number) {
    Item item;
    item.kind = Item::Kind::kInt;
    item.number = number;
    Push(std::move(item));
  }
  Item Pop() {
    if (stack_.empty()) ok_ = false;
    if (!ok_) return {};
    Item item = std::move(stack_.back());
    stack_.pop_back();
    return item;
  }
  void PushTuple(size_t size) {
    Item tuple;
    tuple.kind = Item::Kind::kTuple;
    if (size > stack_.size()) ok_ = false;
    if (!ok_) return;
    const auto first = stack_.end() - static_cast<ptrdiff_t>(size);
    tuple.parts.assign(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    Push(std::move(tuple));
  }
  void PushTupleFromMark() {
    size_t size = 0;
    while (size < stack_.size() && stack_[stack_.size() - 1 - size].kind != Item::Kind::kMark) {
      ++size;
    }
    if (size == stack_.size()) ok_ = false;
    PushTuple(size);
    if (!ok_) return;
    Item tuple = Pop();
    Pop();
    Push(std::move(tuple));
  }
  void Remember(int64_t key) {
    ok_ = ok_ && !stack_.empty() && memo_.size() < kMaxItems;
    if (ok_) memo_[key] = stack_.back();
  }
  void Recall(int64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) ok_ = false;
    if (ok_) Push(found->second);
  }
  // A name applied to arguments. Nothing is called: a tensor is an item, a parameter is its tensor.
  void Reduce() {
    Item arguments = Pop();
    Item function = Pop();
    Item result;
    if (function.text == "torch._utils _rebuild_tensor_v2") {
      result.kind = Item::Kind::kTensor;
      result.parts = std::move(arguments.parts);
    } else if (function.text == "torch._utils _rebuild_parameter" && !arguments.parts.empty()) {
      result = std::move(arguments.parts[0]);
    }
    Push(std::move(result));
  }

  void Step(std::string_view code) {
    if (!ok_) return;
    switch (code[0]) {
      case '\x80':  // PROTO
        return void(Take(1));
      case '\x95':  // FRAME
        return void(Take(8));
      case '(':
        return PushKind(Item::Kind::kMark);
      case ')':
        return PushTuple(0);
      case '\x85':
      case '\x86':
      case '\x87':
        return PushTuple(static_cast<unsigned char>(code[0]) - 0x84u);
      case 't':
        return PushTupleFromMark();
      case 'N':
      case '\x88':  // True
      case '\x89':  // False
        return PushKind(Item::Kind::kOther);
      case 'K':
        return PushInt(TakeInt(1));
      case 'M':
        return PushInt(TakeInt(2));
      case 'J':
        return PushInt(static_cast<int32_t>(TakeInt(4)));
      case '\x8a': {  // LONG1
        const int64_t size = TakeInt(1);
        if (size > 7) ok_ = false;
        return PushInt(TakeInt(static_cast<size_t>(size)));
      }
      case 'X':
        return PushKind(Item::Kind::kText, TakeText(static_cast<size_t>(TakeInt(4))));
      case '\x8c':  // SHORT_BINUNICODE
        return PushKind(Item::Kind::kText, TakeText(static_cast<size_t>(TakeInt(1))));
      case 'c': {
        std::string name(TakeLine());
        name.append(" ").append(TakeLine());
        ok_ = ok_ && name.size() <= kMaxTextBytes;
        return PushKind(Item::Kind::kGlobal, std::move(name));
      }
      case '\x93': {  // STACK_GLOBAL
        const Item name = Pop(), module_name = Pop();
        return PushKind(Item::Kind::kGlobal, module_name.text + " " + name.text);
      }
      case 'Q': {  // BINPERSID
        Item storage = Pop();
        storage.kind = Item::Kind::kStorage;
        return Push(std::move(storage));
      }
      case 'R':
        return Reduce();
      case 'q':
        return Remember(TakeInt(1));
      case 'r':
        return Remember(TakeInt(4));
      case '\x94':  // MEMOIZE
        return Remember(static_cast<int64_t>(memo_.size()));
      case 'h':
        return Recall(TakeInt(1));
      case 'j':
        return Recall(TakeInt(4));
      case '.':
        stopped_ = true;
        return;
      default:
        ok_ = false;
    }
  }

  std::string_view bytes_;
  bool ok_ = true;
  bool stopped_ = false;
  std::vector<Item> stack_;
  std::map<int64_t, Item> memo_;
};

// ---- The tensor ----

// ('storage', type, key, device, number of elements)
struct Storage {
  std::string dtype;
  size_t element_bytes = 0;
  std::string key;
};

std::optional<Storage> StorageOf(const Item& item) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {"torch FloatStorage", "float32"},
      {"torch HalfStorage", "float16"},
      {"torch BFloat16Storage", "bfloat16"}};
  if (item.kind != Item::Kind::kStorage || item.parts.size() != 5) return std::nullopt;
  for (const auto& [storage, dtype] : kTypes) {
    if (item.parts[1].text == storage) {
      return Storage{std::string(dtype), dtype == "float32" ? size_t{4} : size_t{2},
                     item.parts[2].text};
    }
  }
  return std::nullopt;
}

std::vector<int64_t> NumbersOf(const Item& tuple) {
  std::vector<int64_t> numbers;
  for (const Item& part : tuple.parts) numbers.push_back(part.number);
  return numbers;
}

// Sizes and steps of [rows, columns]; a first dimension of 1 in front is dropped.
bool IsMatrix(std::vector<int64_t>* shape, std::vector<int64_t>* strides) {
  if (shape->size() != strides->size()) return false;
  if (shape->size() == 3 && shape->front() == 1) {
    shape->erase(shape->begin());
    strides->erase(strides->begin());
  }
  return shape->size() == 2;
}

std::optional<std::string_view> FindEntry(const std::vector<ZipEntry>& entries,
                                          std::string_view name) {
  for (const ZipEntry& entry : entries) {
    const size_t slash = entry.name.find('/');  // after the archive's own name
    if (slash != std::string_view::npos && entry.name.substr(slash + 1) == name) return entry.data;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<TorchTensor> ReadTorchTensor(std::string_view file) {
  constexpr size_t kMaxPickleBytes = 16384;
  constexpr int64_t kMaxSize = int64_t{1} << 30;
  ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, ReadZipEntries(file));
  const auto pickle = FindEntry(entries, "data.pkl");
  const Status no_tensor = InvalidArgumentError("not a file of torch.save with one dense tensor");
  if (!pickle || pickle->size() > kMaxPickleBytes) return no_tensor;
  const std::optional<Item> item = PickleReader(*pickle).Run();
  // (storage, offset, shape, strides, requires_grad, hooks)
  if (!item || item->kind != Item::Kind::kTensor || item->parts.size() < 4) return no_tensor;
  const std::optional<Storage> storage = StorageOf(item->parts[0]);
  if (!storage) {
    return InvalidArgumentError("a tensor must be of float32, float16 or bfloat16");
  }
  std::vector<int64_t> shape = NumbersOf(item->parts[2]), strides = NumbersOf(item->parts[3]);
  if (!IsMatrix(&shape, &strides)) {
    return InvalidArgumentError("a tensor must have two dimensions, tokens and hidden size");
  }
  const int64_t rows = shape[0], columns = shape[1];
  if (rows < 1 || columns < 1 || rows > kMaxSize || columns > kMaxSize / rows) {
    return InvalidArgumentError("a tensor must have between 1 and 2^30 numbers");
  }
  if (item->parts[1].number != 0 || strides[1] != 1 || (strides[0] != columns && rows > 1)) {
    return InvalidArgumentError("a tensor must be contiguous; send tensor.contiguous().clone()");
  }
  const auto data = FindEntry(entries, "data/" + storage->key);
  const size_t num_bytes =
      static_cast<size_t>(rows) * static_cast<size_t>(columns) * storage->element_bytes;
  if (!data || data->size() < num_bytes) {
    return InvalidArgumentError("a tensor's numbers are missing");
  }
  return TorchTensor{storage->dtype, rows, columns, std::string(data->substr(0, num_bytes))};
}

}  // namespace tandem
