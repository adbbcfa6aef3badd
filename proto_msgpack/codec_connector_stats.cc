#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "proto_msgpack/codec_writer.h"
#include "proto_msgpack/kv_connector_stats.h"
#include "proto_msgpack/msgpack_reader.h"

namespace tandem::wire {
namespace {

using Kind = ConnectorSeries::Kind;

constexpr std::string_view kTypes = "types", kData = "data", kInfo = "info";
constexpr std::string_view kKinds[] = {"counter", "gauge", "histogram"};

// Bytes and blocks are integers there, seconds are not.
void PackNumber(MsgpackWriter& w, double value) {
  constexpr double kExact = int64_t{1} << 53;
  const bool is_whole = std::abs(value) < kExact && value == std::trunc(value);
  is_whole ? w.Int(static_cast<int64_t>(value)) : w.Float64(value);
}

void PackValue(MsgpackWriter& w, const ConnectorSeries& series) {
  w.Array(series.labels.size());
  for (const std::string& label : series.labels) w.String(label);
  if (series.kind == Kind::kHistogram) {
    w.Array(series.values.size());
    for (const double value : series.values) PackNumber(w, value);
    return;
  }
  CHECK_EQ(series.values.size(), 1U) << series.name;
  PackNumber(w, series.values.front());
}

Kind ReadKind(MsgpackReader& r) {
  const auto* found = std::ranges::find(kKinds, r.String());
  if (found == std::end(kKinds)) {
    r.Fail("expected counter, gauge or histogram");
    return Kind::kCounter;
  }
  return static_cast<Kind>(found - std::begin(kKinds));
}

std::string ReadFact(MsgpackReader& r) {
  if (r.NextIsString()) return std::string(r.String());
  if (r.NextIsInt()) return std::to_string(r.Int());
  r.Skip();
  return "";
}

// The maps of one connector, in any order of theirs.
struct Parts {
  std::vector<std::pair<std::string_view, Kind>> kinds;
  std::string_view data;
};

void ReadSeries(MsgpackReader& r, std::string_view name, Kind kind, KvConnectorStats* stats) {
  for (uint32_t left = r.MapSize(); left > 0 && r.ok(); --left) {
    ConnectorSeries series = {.name = std::string(name), .kind = kind};
    for (uint32_t n = r.ArraySize(); n > 0 && r.ok(); --n) series.labels.emplace_back(r.String());
    uint32_t num_values = kind == Kind::kHistogram ? r.ArraySize() : 1;
    for (; num_values > 0 && r.ok(); --num_values) series.values.push_back(r.FiniteNumber());
    stats->series.push_back(std::move(series));
  }
}

Status ReadData(const Parts& parts, KvConnectorStats* stats) {
  MsgpackReader r(parts.data);
  for (uint32_t left = r.MapSize(); left > 0 && r.ok(); --left) {
    const std::string_view name = r.String();
    const auto kind =
        std::ranges::find(parts.kinds, name, [](const auto& one) { return one.first; });
    if (kind == parts.kinds.end()) r.Fail("a series of connector statistics has no type");
    if (r.ok()) ReadSeries(r, name, kind->second, stats);
  }
  return r.status();
}

Status ReadConnectors(std::string_view bytes, bool is_nested, KvConnectorStats* stats);

// {data: map}
Status ReadNested(MsgpackReader& r, KvConnectorStats* stats) {
  std::string_view whole;
  for (uint32_t left = r.MapSize(); left > 0 && r.ok(); --left) {
    const bool is_data = r.String() == kData;
    const std::string_view value = r.Raw();
    if (is_data) whole = value;
  }
  if (!r.ok() || whole.empty()) return r.status();
  return ReadConnectors(whole, /*is_nested=*/true, stats);
}

Status ReadConnectors(std::string_view bytes, bool is_nested, KvConnectorStats* stats) {
  MsgpackReader r(bytes);
  Parts parts;
  for (uint32_t left = r.MapSize(); left > 0 && r.ok(); --left) {
    const std::string_view key = r.String();
    if (key == kTypes) {
      for (uint32_t n = r.MapSize(); n > 0 && r.ok(); --n) {
        const std::string_view name = r.String();
        parts.kinds.emplace_back(name, ReadKind(r));
      }
    } else if (key == kData) {
      parts.data = r.Raw();
    } else if (key == kInfo && !r.TryNil()) {
      for (uint32_t n = r.MapSize(); n > 0 && r.ok(); --n) {
        std::string label(r.String());
        stats->info.emplace_back(std::move(label), ReadFact(r));
      }
    } else if (key != kInfo && !is_nested && r.NextIsMap()) {
      RETURN_IF_ERROR(ReadNested(r, stats));
    } else if (key != kInfo) {
      r.Skip();
    }
  }
  RETURN_IF_ERROR(r.status());
  return parts.data.empty() ? OkStatus() : ReadData(parts, stats);
}

}  // namespace

RawValue Packed(const KvConnectorStats& stats) {
  std::vector<const ConnectorSeries*> names;  // the first series of each name
  for (const ConnectorSeries& one : stats.series) {
    const auto is_same = [&](const ConnectorSeries* other) { return other->name == one.name; };
    if (std::ranges::none_of(names, is_same)) names.push_back(&one);
  }
  MsgpackWriter w;
  w.Map(3);
  w.String(kTypes);
  w.Map(names.size());
  for (const ConnectorSeries* one : names) {
    w.String(one->name);
    w.String(kKinds[static_cast<size_t>(one->kind)]);
  }
  w.String(kData);
  w.Map(names.size());
  for (const ConnectorSeries* first : names) {
    const auto is_same = [&](const ConnectorSeries& one) { return one.name == first->name; };
    w.String(first->name);
    w.Map(static_cast<size_t>(std::ranges::count_if(stats.series, is_same)));
    for (const ConnectorSeries& one : stats.series) {
      if (is_same(one)) PackValue(w, one);
    }
  }
  w.String(kInfo);
  if (stats.info.empty()) w.Nil();
  if (!stats.info.empty()) w.Map(stats.info.size());
  for (const auto& [label, value] : stats.info) {
    w.String(label);
    w.String(value);
  }
  return {w.Take()};
}

RawValue PackedByConnector(const std::vector<std::pair<std::string_view, RawValue>>& stats) {
  const auto is_set = [](const auto& one) { return !one.second.is_nil(); };
  const auto num_set = static_cast<size_t>(std::ranges::count_if(stats, is_set));
  if (num_set == 0) return {};
  MsgpackWriter w;
  w.Map(num_set);
  for (const auto& [connector, value] : stats) {
    if (value.is_nil()) continue;
    w.String(connector);
    w.Map(1);
    w.String(kData);
    w.Packed(value.packed);
  }
  return {w.Take()};
}

StatusOr<KvConnectorStats> UnpackKvConnectorStats(const RawValue& value) {
  KvConnectorStats stats;
  RETURN_IF_ERROR(ReadConnectors(value.packed, /*is_nested=*/false, &stats));
  return stats;
}

RawValue WithoutGauges(const RawValue& value) {
  if (value.is_nil()) return {};
  StatusOr<KvConnectorStats> stats = UnpackKvConnectorStats(value);
  if (!stats.ok()) return {};
  std::erase_if(stats->series, [](const auto& one) { return one.kind == Kind::kGauge; });
  return Packed(*stats);
}

}  // namespace tandem::wire
