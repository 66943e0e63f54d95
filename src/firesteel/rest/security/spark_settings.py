"""The Spark settings that jobs of non-admins may use (S7, S8).

Settings are denied by default. Spark has some three thousand settings, and each release adds more; many of them name a file,
a class, a command or a host in unexpected places: `spark.sql.adaptive.customCostEvaluatorClass` loads a class, and
`spark.sql.execution.pyspark.python` runs a program. So the list below has only full names, which are compared exactly, and
each of them takes a number, a switch or one of a few words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from firesteel.errors import Problem

_FIX = "remove it, or ask an admin to add it to security.spark-settings.allowed"

_SESSION = """
    adaptive.enabled
    adaptive.advisoryPartitionSizeInBytes
    adaptive.autoBroadcastJoinThreshold
    adaptive.coalescePartitions.enabled
    adaptive.coalescePartitions.initialPartitionNum
    adaptive.coalescePartitions.minPartitionNum
    adaptive.coalescePartitions.minPartitionSize
    adaptive.coalescePartitions.parallelismFirst
    adaptive.fetchShuffleBlocksInBatch
    adaptive.forceApply
    adaptive.forceOptimizeSkewedJoin
    adaptive.localShuffleReader.enabled
    adaptive.maxShuffledHashJoinLocalMapThreshold
    adaptive.nonEmptyPartitionRatioForBroadcastJoin
    adaptive.optimizeSkewsInRebalancePartitions.enabled
    adaptive.rebalancePartitionsSmallPartitionFactor
    adaptive.skewJoin.enabled
    adaptive.skewJoin.skewedPartitionFactor
    adaptive.skewJoin.skewedPartitionThresholdInBytes
    ansi.enabled
    ansi.doubleQuotedIdentifiers
    ansi.enforceReservedKeywords
    ansi.relationPrecedence
    autoBroadcastJoinThreshold
    avro.compression.codec
    avro.datetimeRebaseModeInRead
    avro.datetimeRebaseModeInWrite
    avro.deflate.level
    avro.filterPushdown.enabled
    broadcastTimeout
    bucketing.coalesceBucketsInJoin.enabled
    bucketing.coalesceBucketsInJoin.maxBucketRatio
    caseSensitive
    cbo.enabled
    cbo.joinReorder.enabled
    cbo.planStats.enabled
    cbo.starSchemaDetection
    codegen.wholeStage
    columnNameOfCorruptRecord
    constraintPropagation.enabled
    crossJoin.enabled
    csv.filterPushdown.enabled
    csv.parser.columnPruning.enabled
    cteRecursionLevelLimit
    cteRecursionRowLimit
    datetime.java8API.enabled
    debug.maxToStringFields
    decimalOperations.allowPrecisionLoss
    execution.arrow.maxBytesPerBatch
    execution.arrow.maxRecordsPerBatch
    execution.arrow.pyspark.enabled
    execution.arrow.pyspark.fallback.enabled
    execution.arrow.pyspark.selfDestruct.enabled
    execution.arrow.useLargeVarTypes
    execution.pandas.convertToArrowArraySafely
    execution.pandas.structHandlingMode
    execution.pandas.udf.buffer.size
    execution.pyspark.udf.faulthandler.enabled
    execution.pyspark.udf.simplifiedTraceback.enabled
    execution.pythonUDF.arrow.enabled
    execution.pythonUDTF.arrow.enabled
    execution.rangeExchange.sampleSizePerPartition
    execution.sortBeforeRepartition
    files.ignoreCorruptFiles
    files.ignoreMissingFiles
    files.maxPartitionBytes
    files.maxPartitionNum
    files.maxRecordsPerFile
    files.minPartitionNum
    files.openCostInBytes
    groupByAliases
    groupByOrdinal
    inMemoryColumnarStorage.batchSize
    inMemoryColumnarStorage.compressed
    inMemoryColumnarStorage.enableVectorizedReader
    inMemoryColumnarStorage.partitionPruning
    join.preferSortMergeJoin
    json.enableExactStringParsing
    json.enablePartialResults
    json.filterPushdown.enabled
    jsonGenerator.ignoreNullFields
    leafNodeDefaultParallelism
    legacy.allowNegativeScaleOfDecimal
    legacy.allowUntypedScalaUDF
    legacy.charVarcharAsString
    legacy.ctePrecedencePolicy
    legacy.exponentLiteralAsDecimal.enabled
    legacy.interval.enabled
    legacy.parquet.nanosAsLong
    legacy.setopsPrecedence.enabled
    legacy.sizeOfNull
    legacy.timeParserPolicy
    limit.initialNumPartitions
    limit.scaleUpFactor
    mapKeyDedupPolicy
    maxBroadcastTableSize
    maxConcurrentOutputFileWriters
    maxPlanStringLength
    maxSinglePartitionBytes
    objectHashAggregate.sortBased.fallbackThreshold
    operatorPipeSyntaxEnabled
    optimizer.dynamicPartitionPruning.enabled
    optimizer.dynamicPartitionPruning.fallbackFilterRatio
    optimizer.dynamicPartitionPruning.reuseBroadcastOnly
    optimizer.dynamicPartitionPruning.useStats
    optimizer.enableCsvExpressionOptimization
    optimizer.enableJsonExpressionOptimization
    optimizer.inSetConversionThreshold
    optimizer.maxIterations
    optimizer.nestedSchemaPruning.enabled
    optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold
    optimizer.runtime.bloomFilter.creationSideThreshold
    optimizer.runtime.bloomFilter.enabled
    orc.aggregatePushdown
    orc.columnarReaderBatchSize
    orc.columnarWriterBatchSize
    orc.compression.codec
    orc.enableNestedColumnVectorizedReader
    orc.enableVectorizedReader
    orc.filterPushdown
    orc.mergeSchema
    orderByOrdinal
    parquet.aggregatePushdown
    parquet.binaryAsString
    parquet.columnarReaderBatchSize
    parquet.compression.codec
    parquet.datetimeRebaseModeInRead
    parquet.datetimeRebaseModeInWrite
    parquet.enableNestedColumnVectorizedReader
    parquet.enableVectorizedReader
    parquet.fieldId.read.enabled
    parquet.fieldId.read.ignoreMissing
    parquet.fieldId.write.enabled
    parquet.filterPushdown
    parquet.inferTimestampNTZ.enabled
    parquet.int96AsTimestamp
    parquet.int96RebaseModeInRead
    parquet.int96RebaseModeInWrite
    parquet.int96TimestampConversion
    parquet.mergeSchema
    parquet.outputTimestampType
    parquet.recordLevelFilter.enabled
    parquet.respectSummaryFiles
    parquet.writeLegacyFormat
    pivotMaxValues
    pyspark.inferNestedDictAsStruct.enabled
    readSideCharPadding
    requireAllClusterKeysForDistribution
    retainGroupColumns
    scripting.enabled
    selfJoinAutoResolveAmbiguity
    session.timeZone
    shuffle.partitions
    sources.bucketing.autoBucketedScan.enabled
    sources.bucketing.enabled
    sources.bucketing.maxBuckets
    sources.parallelPartitionDiscovery.parallelism
    sources.parallelPartitionDiscovery.threshold
    sources.partitionColumnTypeInference.enabled
    sources.partitionOverwriteMode
    sources.v2.bucketing.enabled
    sources.v2.bucketing.pushPartValues.enabled
    sources.validatePartitionColumns
    statistics.histogram.enabled
    statistics.size.autoUpdate.enabled
    storeAssignmentPolicy
    streaming.fileSource.schema.forceNullable
    streaming.fileStreamSink.ignoreMetadata
    streaming.maxBatchesToRetainInMemory
    streaming.metricsEnabled
    streaming.minBatchesToRetain
    streaming.multipleWatermarkPolicy
    streaming.noDataMicroBatches.enabled
    streaming.noDataProgressEventInterval
    streaming.numRecentProgressUpdates
    streaming.pollingDelay
    streaming.schemaInference
    streaming.stateStore.compression.codec
    streaming.stateStore.minDeltasForSnapshot
    streaming.stateStore.skipNullsForStreamStreamJoins.enabled
    streaming.statefulOperator.allowMultiple
    streaming.statefulOperator.checkCorrectness.enabled
    streaming.statefulOperator.useStrictDistribution
    streaming.stopTimeout
    subexpressionElimination.enabled
    timestampType
"""
HARMLESS = frozenset(f"spark.sql.{name}" for name in _SESSION.split())
"""Settings of a session, not of the shared engine; each exists in the required version of Spark."""

_STATE_STORE = """
    allowFAllocate blockCacheSizeMB blockSizeKB changelogCheckpointing.enabled compactOnCommit compression
    lockAcquireTimeoutMs maxOpenFiles maxWriteBufferNumber resetStatsOnLoad trackTotalNumberOfRows writeBufferSizeMB
"""
_ROCKSDB = frozenset(f"spark.sql.streaming.stateStore.rocksdb.{name}" for name in _STATE_STORE.split())
_LINEAGE = frozenset(f"spark.openlineage.parent{name}" for name in ("RunId", "JobNamespace", "JobName"))
"""How a scheduler names the run that a job belongs to; only lineage events read them."""
_STATE = "org.apache.spark.sql.execution.streaming.state"
_ONE_OF: Mapping[str, frozenset[str]] = {
    # This names a class, so only Spark's own are allowed.
    "spark.sql.streaming.stateStore.providerClass": frozenset(
        {f"{_STATE}.RocksDBStateStoreProvider", f"{_STATE}.HDFSBackedStateStoreProvider"}
    ),
}
_NAME = re.compile(r"spark\.[A-Za-z0-9_.-]{1,200}")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.,:+/ -]{0,256}")
_LONGEST_VALUE = 4096
# Settings that a `*` in an admin's list never covers: the admin thought of existing settings, and these could be new ones.
_DANGEROUS = re.compile(
    r"class|jar|path|dir|file|ur[il]|command|script|python|plugin|listener|extension|provider|factory|catalog|env|host|addr|endpoint"
    r"|password|secret|token|credential|keytab|principal|kerberos|java|librar|package|repositor|ivy|image|volume|template|hadoop"
    r"|hive|metastore|submit|prox|user|serializer|committer|protocol|compiler|reflect|artifact|redaction|restricted"
    r"|auth|ssl|acl|option|module|master|remote|connect|agent",
    re.IGNORECASE,
)


def refused_settings(settings: Mapping[str, str], extra: Sequence[str]) -> list[Problem]:
    """A problem for each setting that a job of a non-admin may not have.

    Args:
        settings: Spark settings as the job has them.
        extra: Settings that an admin allows beyond the harmless ones (`security.spark-settings.allowed`); a trailing `*`
            stands for the rest of a name, but never for one that looks as if it named files, classes, hosts or secrets.
    """
    named = frozenset(e for e in extra if not e.endswith("*"))
    prefixes = tuple(e.removesuffix("*") for e in extra if e.endswith("*") and len(e) > 1)
    problems = (_refusal(key, str(value), named, prefixes) for key, value in settings.items())
    return [p for p in problems if p is not None]


def _refusal(key: str, value: str, named: frozenset[str], prefixes: tuple[str, ...]) -> Problem | None:
    field = f"settings.spark.{_shown(key)}"
    if key in _ONE_OF:
        if value in _ONE_OF[key]:
            return None
        fix = f"write {' or '.join(sorted(_ONE_OF[key]))}"
        return Problem("names a class that is not one of Spark's own", fix, field=field)
    if key in HARMLESS or key in _ROCKSDB or key in _LINEAGE:
        if _PLAIN_VALUE.fullmatch(value):
            return None
        return Problem("has a value that is not plain", "write a number, true or false, or a word", field=field)
    if not (_NAME.fullmatch(key) and (key in named or _is_below(key, prefixes))):
        return Problem("may only be set by admins", _spelling(key) or _FIX, field=field)
    if len(value) > _LONGEST_VALUE or any(ord(c) < 32 or ord(c) == 127 or c in "\x85\u2028\u2029" for c in value):
        return Problem(
            "has a value that is very long, or has line breaks or control characters",
            "write a plain value",
            field=field,
        )
    if "${" in value:  # Spark would insert variables of its environment: ${env:AWS_SECRET_ACCESS_KEY}
        return Problem(
            "has a value with ${...} in it, which Spark would replace", "write the value itself", field=field
        )
    return None


def _is_below(key: str, prefixes: tuple[str, ...]) -> bool:
    """The text before the star is intended; the star itself may stand for anything."""
    return any(key.startswith(prefix) and not _DANGEROUS.search(key.removeprefix(prefix)) for prefix in prefixes)


_BY_SPELLING: Mapping[str, str] = {name.lower(): name for name in HARMLESS | _ROCKSDB | frozenset(_ONE_OF)}


def _spelling(key: str) -> str:
    """The fix for a key that is a harmless one in another spelling. The key is still refused, as Spark may read it
    differently."""
    close = re.sub(r"\s", "", key).lower()
    name = _BY_SPELLING.get(close) or _BY_SPELLING.get(f"spark.{close}")
    return f"write {name}" if name else ""


def _shown(key: str) -> str:
    text = key if key.isprintable() else ascii(key)[1:-1]
    return text if len(text) <= 100 else f"{text[:100]}..."
