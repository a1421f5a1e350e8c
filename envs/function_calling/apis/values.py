"""Values of requests; every fourth value is held out for the test split."""


def _split_words(*lines: str) -> tuple[str, ...]:
    return tuple(" ".join(lines).split())


CITIES = _split_words(
    "Lisbon Oslo Quito Nairobi Hanoi Bergen Cusco Dakar Tallinn Perth Osaka Bogota Krakow Windhoek Seville Tbilisi",
    "Lima Reykjavik Accra Porto Kigali Turku Valparaiso Sapporo Zagreb Darwin Tunis Galway Medellin Chennai Leipzig",
    "Adelaide Hobart Cordoba Riga Busan Malmo Fukuoka Ghent Bari",
)
_FIRST_NAMES = _split_words(
    "Ana Bilal Chiara Dmitri Esi Farid Greta Hugo Ines Jamal Kaja Liam Mei Noor Olga Paolo Quinn Rosa Sven Tara Umar",
    "Vera Wanda Xavi Yuki Zoe Amina Bruno Carla Diego Elif Femi",
)
_LAST_NAMES = _split_words(
    "Almeida Baran Conti Duarte Essien Falk Gruber Hansen Ibarra Juma Kovac Lund Moreau Nasser Okoye Petrov Quiroga",
    "Rossi Solberg Tanaka Usman Vidal Weber Ximenez Yamada Zeller Aydin Bianchi Costa Dlamini Erdem Fashola",
)
PEOPLE = tuple(f"{first} {last}" for first, last in zip(_FIRST_NAMES, _LAST_NAMES, strict=True))
MEETINGS = (
    "Budget review",
    "Design critique",
    "Dentist",
    "Sprint planning",
    "Board call",
    "Piano lesson",
    "Supplier visit",
    "Team lunch",
    "Safety training",
    "Roadmap workshop",
    "Tax consultation",
    "Yoga class",
    "Press briefing",
    "Code walkthrough",
    "Parents' evening",
    "Salary talk",
)
PRODUCTS = (
    "desk lamp",
    "hiking boots",
    "espresso machine",
    "rain jacket",
    "mechanical keyboard",
    "water bottle",
    "yoga mat",
    "bike helmet",
    "wool blanket",
    "chess set",
    "travel mug",
    "standing desk",
    "garden hose",
    "camping stove",
    "toaster",
    "snow shovel",
    "picture frame",
    "desk fan",
    "kettle",
    "sleeping bag",
    "tripod",
    "rice cooker",
    "backpack",
    "umbrella",
)
FOLDERS = (
    "/reports",
    "/photos/summer",
    "/invoices",
    "/music/demos",
    "/contracts",
    "/drafts",
    "/backups/daily",
    "/recipes",
    "/slides",
    "/scans",
    "/letters",
    "/logs/web",
)
FILE_STEMS = (
    "quarter",
    "garden",
    "lease",
    "thesis",
    "menu",
    "roster",
    "survey",
    "budget",
    "poster",
    "minutes",
    "itinerary",
    "catalogue",
    "glossary",
    "inventory",
    "timeline",
    "essay",
)
ROOMS = ("kitchen", "bedroom", "study", "hallway", "garage", "bathroom", "nursery", "attic")
TEXTS = (
    "The shipment has arrived.",
    "I will be ten minutes late.",
    "Please send me the signed form.",
    "The meeting has moved to Thursday.",
    "Thank you for the flowers.",
    "Can you call me back tonight?",
    "The keys are under the mat.",
    "Lunch is on me tomorrow.",
    "Your parcel is at reception.",
    "The build is green again.",
    "We need two more chairs.",
    "The invoice has been paid.",
)
ARTISTS = (
    "Nina Simone",
    "Daft Punk",
    "Fela Kuti",
    "Clara Schumann",
    "Bill Evans",
    "Cesaria Evora",
    "The Meters",
    "Arvo Part",
    "Mercedes Sosa",
    "Kraftwerk",
    "Miriam Makeba",
    "John Coltrane",
)
MOODS = ("focus", "dinner", "workout", "rainy day", "road trip", "sunrise", "study", "party")
