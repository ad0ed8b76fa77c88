"""What a transform may be made of, by the names that Spark gives it. Data.

An allow-list: what a later Spark adds, or a jar brings along, is refused until somebody has
looked at it. A test holds the lists against Spark's own registry of functions.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What a transform may call.
FUNCTIONS = _words(
    """
    abs acos acosh add_months aes_decrypt aggregate and array array_append array_compact
    array_contains array_distinct array_except array_insert array_intersect array_join array_max
    array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64
    between bigint bin binary bit_count bit_get bit_length boolean bround btrim cardinality cast
    cbrt ceil ceiling char char_length character_length chr coalesce collate collation concat
    concat_ws contains conv convert_timezone cos cosh cot crc32 csc date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day
    dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e element_at elt encode
    endswith equal_null exists exp explode explode_outer expm1 extract factorial filter find_in_set
    flatten float floor forall format_number format_string from_base32 from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hmac hour hypot if
    ifnull ilike in initcap inline inline_outer instr int is_valid_utf8 is_valid_variant
    is_variant_null isnan isnotnull isnull jaro_winkler_similarity json_array_length
    json_object_keys json_tuple last_day lcase least left len length levenshtein like ln locate log
    log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys
    map_values map_zip_with mask md5 minute mod month monthname months_between named_struct nanvl
    negative next_day not nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url pi
    pmod posexplode posexplode_outer position positive pow power printf quarter quote radians
    raise_error reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike round rpad
    rtrim schema_of_csv schema_of_json schema_of_variant sec second sentences sequence sha sha1 sha2
    shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint sort_array
    soundex space split split_part sqrt stack startswith str_to_map string struct substr substring
    substring_index tan tanh time time_bucket time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp
    timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32 to_binary
    to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar to_variant_object transform transform_keys
    transform_values translate trim trunc try_add try_aes_decrypt try_divide try_element_at
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod
    try_multiply try_parse_json try_parse_url try_subtract try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append
    try_variant_get try_variant_insert try_variant_set typeof ucase unbase64 unhex unix_date
    unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode url_encode
    validate_utf8 variant_array_append variant_delete variant_get variant_insert variant_set
    variant_strip_nulls weekday weekofyear when width_bucket xxhash64 year zeroifnull zip_with
    """
)

# Functions of several rows: told by their own reason.
AGGREGATES = _words(
    """
    any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
    approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
    bitmap_or_agg bool_and bool_or collect_list collect_set collect_union corr count count_if
    count_min_sketch covar_pop covar_samp cume_dist dense_rank every first first_value
    histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis
    last last_value listagg max max_by mean measure median min min_by mode nth_value ntile
    percent_rank percentile percentile_approx percentile_cont percentile_disc rank regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy row_number
    schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp
    variance vector_avg vector_sum
    """
)

# Where a call has patterns: from that argument on. As they are called, and as operators are parsed.
PATTERNS = {
    **dict.fromkeys(("rlike", "regexp", "regexp_like", "like", "ilike"), 1),
    **dict.fromkeys(("RLike", "Like", "ILike"), 1),
    **dict.fromkeys(("regexp_count", "regexp_extract", "regexp_extract_all", "regexp_instr"), 1),
    **dict.fromkeys(("regexp_replace", "regexp_substr", "split", "str_to_map"), 1),
    **dict.fromkeys(("parse_url", "try_parse_url"), 2),
}
PATTERN_REASON = (
    "must not take a pattern from the record: whoever wrote that could make it take years; write"
    " the pattern as a constant"
)

# What these and the operators of SQL are in an analysed plan.
EXPRESSIONS = _words(
    """
    Abs Acos Acosh Add AddMonths AesDecrypt Alias And ArrayAggregate ArrayAppend ArrayCompact
    ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayInsert
    ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat
    ArraySize ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Ascii Asin Asinh
    AssertTrue Atan Atan2 Atanh AttributeReference BRound Base32 Base64 Between Bin BinaryPad
    BitLength BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Cbrt
    Ceil Chr Coalesce Collate Collation Concat ConcatWs Contains Conv ConvertTimezone Cos Cosh Cot
    Crc32 CreateArray CreateMap CreateNamedStruct Csc CsvToStructs DateAdd DateAddInterval
    DateAddYMInterval DateDiff DateFormatClass DateFromUnixDate DatePart DateSub DatetimeSub DayName
    DayOfMonth DayOfWeek DayOfYear Decode Divide DivideDTInterval DivideInterval DivideYMInterval
    ElementAt Elt Encode EndsWith EqualNull EqualNullSafe EqualTo EulerNumber Exp Explode Expm1
    Extract ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths
    ExtractIntervalSeconds ExtractIntervalYears Factorial FindInSet Flatten Floor FormatNumber
    FormatString FromUTCTimestamp FromUnixTime GeneratorOuter Get GetArrayItem GetArrayStructFields
    GetJsonObject GetMapValue GetStructField GetTimestamp GreaterThan GreaterThanOrEqual Greatest
    Hex Hmac Hour HoursOfTime Hypot ILike If In InitCap Inline IntegralDivide IsNaN IsNotNull IsNull
    IsValidUTF8 JaroWinkler JsonObjectKeys JsonToStructs JsonTuple LambdaFunction LastDay Least Left
    Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny Literal Log
    Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval MakeDate MakeInterval MakeTime
    MakeTimestamp MakeTimestampFromDateTime MakeTimestampLTZ MakeTimestampNTZ MakeValidUTF8
    MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries
    MapKeys MapValues MapZipWith Mask Md5 MicrosToTimestamp MillisToTimestamp Minute MinutesOfTime
    Month MonthName MonthsBetween Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval
    Murmur3Hash NaNvl NamedLambdaVariable NanosToTimestamp NextDay Not NotLikeAll NotLikeAny NullIf
    NullIfZero Nvl Nvl2 OctetLength Or Overlay ParseToDate ParseToTimestamp ParseToTimestampLTZ
    ParseUrl Pi Pmod PosExplode Pow PreciseTimestampConversion Quarter Quote RLike RaiseError
    RegExpCount RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Remainder
    ResolvedCollation Reverse Right Rint Round RoundCeil RoundFloor SchemaOfCsv SchemaOfJson Sec
    Second SecondWithFraction SecondsOfTime SecondsOfTimeWithFraction SecondsToTimestamp Sentences
    Sequence Sha1 Sha2 ShiftLeft ShiftRight ShiftRightUnsigned Signum Sin Sinh Size Slice SortArray
    SoundEx SplitPart Sqrt Stack StartsWith StringInstr StringLPad StringLocate StringRPad
    StringRepeat StringReplace StringSpace StringSplit StringToMap StringTranslate StringTrim
    StringTrimBoth StringTrimLeft StringTrimRight StructsToCsv StructsToJson Substring
    SubstringIndex Subtract SubtractDates SubtractTimes SubtractTimestamps Tan Tanh TimeAddInterval
    TimeBucket TimeDiff TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis
    TimeToSeconds TimeTrunc TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff
    ToBinary ToCharacter ToDegrees ToNumber ToRadians ToTime ToUTCTimestamp ToUnixTimestamp
    TransformKeys TransformValues TruncDate TruncTimestamp TryAdd TryAesDecrypt TryDivide
    TryElementAt TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime TryMakeTimestampLTZ
    TryMakeTimestampNTZ TryMod TryMultiply TryParseUrl TrySubtract TryToBinary TryToNumber
    TryUrlDecode TryValidateUTF8 TypeOf UnBase32 UnBase64 UnaryMinus UnaryPositive Unhex UnixDate
    UnixMicros UnixMillis UnixNanos UnixSeconds UnixTimestamp Upper UrlDecode UrlEncode ValidateUTF8
    WeekDay WeekOfYear WidthBucket XxHash64 Year YearOfWeek ZeroIfNull ZipWith
    variant.IsValidVariant variant.IsVariantNull variant.ParseJson variant.SchemaOfVariant
    variant.ToVariantObject variant.VariantArrayAppend variant.VariantDelete variant.VariantGet
    variant.VariantInsert variant.VariantSet variant.VariantStripNulls
    """
)

# What stands for these in a query that is parsed, and not yet analysed.
UNRESOLVED = _words(
    """
    MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction
    UnresolvedGenerator UnresolvedStar UnresolvedStarExceptOrReplace
    UnresolvedNamedLambdaVariable
    """
)

# What keeps a row's result a matter of that row.
ROW_BY_ROW = _words(
    """
    CTERelationDef CTERelationRef Filter Generate Project SubqueryAlias Union UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedWith View WithCTE
    """
)

_CLOCK_REASON = "it depends on when the batch runs; use a column of the record"
_RANDOM = "rand randn random randstr uniform uuid shuffle aes_encrypt"
_CLOCK = """
    curdate current_date current_time current_timestamp localtime localtimestamp now
"""
_PLACE = """
    current_catalog current_database current_path current_schema current_timezone current_user
    input_file_block_length input_file_block_start input_file_name monotonically_increasing_id
    session_user spark_partition_id user version
"""
_FOREIGN = "java_method reflect try_reflect"
_DOCUMENTS = """
    from_avro from_protobuf from_xml schema_of_avro schema_of_xml to_avro to_protobuf to_xml xpath
    xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string
"""
# Why well-known functions are not among them; others are told that they are not.
REASONS = {
    **dict.fromkeys(_CLOCK.split(), _CLOCK_REASON),
    **dict.fromkeys(_RANDOM.split(), "it gives another value at every attempt"),
    **dict.fromkeys(_PLACE.split(), "it depends on where or by whom the batch is run"),
    **dict.fromkeys(_FOREIGN.split(), "it calls code that nobody can judge here"),
    **dict.fromkeys(_DOCUMENTS.split(), "its reader may open what the record names"),
}
NO_REASON = "it is not one of the functions that a transform may call (docs/engine.md)"

# These need no parentheses, so only the analysed plan has them for sure.
BARE = {
    "CurrentDate": "current_date",
    "CurrentTime": "current_time",
    "CurrentTimestamp": "current_timestamp",
    "LocalTimestamp": "localtimestamp",
}
BARE_REASON = _CLOCK_REASON

OPERATORS = {
    "Aggregate": "an aggregate (GROUP BY, sum, count, …)",
    "UnresolvedHaving": "an aggregate (GROUP BY, sum, count, …)",
    "Distinct": "DISTINCT",
    "Window": "a window function",
    "WithWindowDefinition": "a window function",
    "WindowExpression": "a window function",
    "UnresolvedWindowExpression": "a window function",
    "Sort": "ORDER BY or SORT BY",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Join": "a join",
    "LateralJoin": "a join",
    "AsOfJoin": "a join",
    "Sample": "TABLESAMPLE",
    "Intersect": "INTERSECT",
    "Except": "EXCEPT",
    "Pivot": "PIVOT",
    "UnresolvedHint": "a hint",
    "ScriptTransformation": "TRANSFORM … USING",
}
SUBQUERIES = _words(
    """
    Exists InSubquery LateralSubquery ListQuery ScalarSubquery
    """
)
